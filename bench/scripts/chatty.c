/* Write 1,000 lines a second, one write each: chatty.py in C, so that 64 writers leave the cores to the launcher. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_BYTES 80
#define PERIOD_NS 1000000LL

static long long now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void sleep_until(long long when) {
    struct timespec t = {when / 1000000000LL, when % 1000000000LL};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

int main(int argc, char **argv) {
    const char *rank = getenv("RANK");
    if (argc != 5 || rank == NULL) return 2;
    int side = open(argv[1], O_WRONLY | O_APPEND);
    if (side < 0 || write(side, "ready\n", 6) != 6) return 3;
    while (access(argv[2], F_OK) != 0) sleep_until(now_ns() + 10 * PERIOD_NS);
    char line[LINE_BYTES + 1];
    int burst = atoi(argv[4]);
    long long start = now_ns(), due = start, end = start + atoll(argv[3]) * PERIOD_NS, count = 0;
    while (now_ns() < end) {
        sleep_until(due);
        for (int i = 0; i < burst; i++) {
            int length = snprintf(line, sizeof line, "%s %lld %lld ", rank, count, now_ns());
            memset(line + length, '.', LINE_BYTES - 1 - length);
            line[LINE_BYTES - 1] = '\n';
            if (write(1, line, LINE_BYTES) != LINE_BYTES) return 4;
            count++;
        }
        due += burst * PERIOD_NS;
    }
    int length = snprintf(line, sizeof line, "done %s %lld %lld\n", rank, count, now_ns() - start);
    return write(side, line, length) == length ? 0 : 5;
}
