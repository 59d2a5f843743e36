"""What every row of the benchmark needs: processes that are always cleaned up, alternating rounds, numbers, a report.

It knows nothing of what is measured: that is in `rows/`.
"""
