# An image to train in. What follows its name goes to `planaria run`; s3://... is fetched first.
#
#   docker build -t hello_elastic:dev .
#   docker run --rm hello_elastic:dev --standalone --nproc-per-node=2 /workspace/echo.py
#
# As typed it has torch with CUDA, several gigabytes. TORCH= leaves torch out; PIP_EXTRA_INDEX_URL and TORCH=...+cpu make
# it small. docs/containers.md says what can be chosen, and why it is so. The file needs no BuildKit.

# Any image with Python 3.11 or newer, pip, and Debian's tools. If it brings torch, leave ours out: TORCH=
ARG BASE=python:3.12-slim-bookworm

FROM ${BASE} AS build
# Where packages come from: pip's own default unless given. The second is looked at beside the first.
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
# The version of torch, or nothing; what else your script needs; the extras of planaria.
ARG TORCH=2.13.0
ARG PACKAGES=numpy
ARG EXTRAS=aws,etcd
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore PIP_PYTHON=/opt/planaria/bin/python
# What changes least comes first: a change of the sources does not download torch again.
# The environment sees what the base has, such as the torch of an image that was made for it.
RUN python3 -m venv --without-pip --system-site-packages /opt/planaria && \
    if [ -n "$TORCH" ]; then python3 -m pip install "torch==$TORCH"; fi && \
    if [ -n "$PACKAGES" ]; then python3 -m pip install $PACKAGES; fi
COPY pyproject.toml README.md LICENSE /src/
COPY bin /src/bin
COPY src /src/src
RUN python3 -m pip install "/src[$EXTRAS]"

FROM ${BASE}
# tini is process 1: it passes signals on and buries orphans. A base that has it needs no apt.
ARG DEBIAN_MIRROR
# Ubuntu has a user 1000 of its own; ours has the number as well.
RUN { command -v tini >/dev/null || { \
      if [ -n "$DEBIAN_MIRROR" ]; then \
        find /etc/apt -name '*.sources' -o -name '*.list' | xargs sed -i -E "s|https?://[^/ ]+/debian|$DEBIAN_MIRROR/debian|"; fi && \
      apt-get update && apt-get install -y --no-install-recommends tini && rm -rf /var/lib/apt/lists/*; }; } && \
    useradd --create-home --uid 1000 --non-unique planaria && mkdir -p /workspace /checkpoints && chown planaria: /workspace /checkpoints
COPY --from=build /opt/planaria /opt/planaria
COPY examples/echo.py /workspace/echo.py
COPY examples /workspace/examples
ENV PATH=/opt/planaria/bin:$PATH PYTHONUNBUFFERED=1
WORKDIR /workspace
USER planaria
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 CMD ["planaria", "health"]
# -s: it does its work also as the child of another init, that of `docker run --init`.
# No CMD: a host that gives the job's description gives no words.
ENTRYPOINT ["tini", "-s", "--", "planaria-entry"]
