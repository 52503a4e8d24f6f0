/* Preloaded: sets the clock of the day forward and back by $JUMP_SECONDS, in turn, every two seconds. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static long jump(void) {
    static long size = 0;
    if (!size) { const char *s = getenv("JUMP_SECONDS"); size = s ? atol(s) : 600; }
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    return (now.tv_sec / 2) % 2 ? size : -size;
}
int clock_gettime(clockid_t id, struct timespec *t) {
    int done = syscall(SYS_clock_gettime, id, t);
    if (!done && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) t->tv_sec += jump();
    return done;
}
int gettimeofday(struct timeval *t, void *z) {
    struct timespec s; clock_gettime(CLOCK_REALTIME, &s);
    t->tv_sec = s.tv_sec; t->tv_usec = s.tv_nsec / 1000; return 0;
}
time_t time(time_t *out) { struct timespec s; clock_gettime(CLOCK_REALTIME, &s); if (out) *out = s.tv_sec; return s.tv_sec; }
