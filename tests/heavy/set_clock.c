/* Preloaded into a program (LD_PRELOAD), sets its time of day as clock_settime(2) would.
 *
 * The environment's CLOCK_STEPS names a file of steps: pairs of doubles, the real Unix time of a
 * step and the seconds by which the clock is ahead from then on. What counts since boot goes on.
 * Times of files that were written after a step are those of the clock at that time.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { STEPS = 64 };
static const volatile double (*steps)[2];

__attribute__((constructor)) static void map(void) {
    const char *path = getenv("CLOCK_STEPS");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *found = mmap(0, STEPS * sizeof *steps, PROT_READ, MAP_SHARED, file, 0);
    steps = found == MAP_FAILED ? 0 : found;
    close(file);
}

static double ahead_at(double real) {
    double ahead = 0;
    for (int i = 0; steps && i < STEPS && steps[i][0] != 0 && steps[i][0] <= real; i++)
        ahead = steps[i][1];
    return ahead;
}

static void shift(struct timespec *at) {
    double ahead = ahead_at(at->tv_sec + at->tv_nsec / 1e9);
    long long nanoseconds = at->tv_nsec + (long long)(ahead * 1e9);
    at->tv_sec += nanoseconds / 1000000000;
    at->tv_nsec = nanoseconds % 1000000000;
    if (at->tv_nsec < 0) {
        at->tv_nsec += 1000000000;
        at->tv_sec--;
    }
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    int failed = syscall(SYS_clock_gettime, clock, at);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        shift(at);
    return failed;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at)
        *at = now.tv_sec;
    return now.tv_sec;
}

static int shifted(int failed, struct stat *status) {
    if (!failed) {
        shift(&status->st_mtim);
        shift(&status->st_ctim);
    }
    return failed;
}

#define STATUS(name, parameters, ...)                                                 \
    int name parameters {                                                             \
        static int (*original) parameters;                                            \
        if (!original)                                                                \
            original = (int(*) parameters)dlsym(RTLD_NEXT, #name);                    \
        return shifted(original(__VA_ARGS__), (struct stat *)status);                 \
    }
STATUS(stat, (const char *path, struct stat *status), path, status)
STATUS(lstat, (const char *path, struct stat *status), path, status)
STATUS(fstat, (int file, struct stat *status), file, status)
STATUS(fstatat, (int folder, const char *path, struct stat *status, int flags), folder, path, status, flags)
STATUS(stat64, (const char *path, struct stat64 *status), path, status)
STATUS(lstat64, (const char *path, struct stat64 *status), path, status)
STATUS(fstat64, (int file, struct stat64 *status), file, status)
STATUS(fstatat64, (int folder, const char *path, struct stat64 *status, int flags), folder, path, status, flags)
