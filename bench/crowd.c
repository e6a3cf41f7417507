/* A crowd: so many processes, as children of one, each with a command line of its own.
 *
 *     crowd PROCESSES WORKERS MAPPINGS THREADS
 *
 * The first WORKERS of them are called `worker-0`, `worker-1` …, the others `bystander-0` …. A worker
 * has about MAPPINGS mappings of memory and THREADS threads, as what trains has, for some programs
 * look at each. All sleep, and as on any machine not for ever: each worker and each tenth of the
 * others wakes once a second, and one of those then starts a child that ends at once. It says "ready"
 * when all are there, and takes them along when its input ends.
 */
#define _GNU_SOURCE /* pipe2 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { READY = 9 }; /* the descriptor that all hold open until they have what they should have */

static void *sleep_on(void *nothing) {
    for (;;) pause();
    return nothing;
}

/* Every other page of one mapping may not be written to, which makes a mapping of each. */
static int take_mappings(int count) {
    long page = sysconf(_SC_PAGESIZE);
    char *start = mmap(0, count * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) return -1;
    memset(start, 1, count * page);
    for (int number = 0; number < count; number += 2)
        if (mprotect(start + number * page, page, PROT_READ)) return -1;
    return 0;
}

static int take_threads(int count) {
    pthread_attr_t small;
    pthread_t one;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    while (count-- > 0)
        if (pthread_create(&one, &small, sleep_on, 0)) return -1;
    return 0;
}

static void live(int wakes, int starts) {
    for (;;) {
        if (!wakes) pause();
        sleep(1);
        if (starts) {
            pid_t child = fork();
            if (child == 0) _exit(0);
            waitpid(child, 0, 0);
        }
    }
}

static int become(const char *mappings, const char *threads, const char *name) {
    const char *dash = strrchr(name, '-');
    int number = dash ? atoi(dash + 1) : 0;
    int works = !strncmp(name, "worker", 6);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if ((atoi(mappings) && take_mappings(atoi(mappings))) || take_threads(atoi(threads) - 1)) {
        (void)!write(READY, "", 1);
        return 1;
    }
    close(READY);
    live(works || number % 10 == 0, !works && number == 0);
    return 0;
}

int main(int argc, char **argv) {
    /* one of the crowd; its name comes last, as workers are matched by the end of their line */
    if (argc == 4) return become(argv[1], argv[2], argv[3]);
    if (argc != 5) return 2;
    int processes = atoi(argv[1]), workers = atoi(argv[2]), ends[2];
    pid_t *crowd = calloc(processes + 1, sizeof *crowd);
    if (!crowd || pipe2(ends, O_CLOEXEC) || dup2(ends[1], READY) < 0) return 1;
    for (int number = 0; number < processes; number++) {
        int works = number < workers;
        char name[32];
        if (works)
            snprintf(name, sizeof name, "worker-%d", number);
        else
            snprintf(name, sizeof name, "bystander-%d", number - workers);
        pid_t child = fork();
        if (child < 0) {
            perror("fork");
            return 1;
        }
        if (child == 0) {
            execl("/proc/self/exe", argv[0], works ? argv[3] : "0", works ? argv[4] : "1", name,
                  (char *)0);
            _exit(1);
        }
        crowd[number] = child;
    }
    close(ends[1]);
    close(READY);
    char failed;
    if (read(ends[0], &failed, 1) != 0) { /* nothing to read: all have closed theirs */
        fputs("a worker has no room\n", stderr);
        return 1;
    }
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF) {
    }
    /* all are gone before this one is */
    for (int number = 0; number < processes; number++) kill(crowd[number], SIGKILL);
    while (wait(0) > 0) {
    }
    return 0;
}
