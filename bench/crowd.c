/* A crowd: so many processes that sleep, as children of one, each with a command line of its own.
 *
 *     crowd PROCESSES WORKERS
 *
 * The first WORKERS of them are called `worker-0`, `worker-1` …, the others `bystander`. It says
 * "ready" when all are there, and takes them along when its input ends.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc == 2) { /* one of the crowd */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) pause();
    }
    int processes = argc == 3 ? atoi(argv[1]) : 0, workers = argc == 3 ? atoi(argv[2]) : 0;
    for (int number = 0; number < processes; number++) {
        char name[32] = "bystander";
        if (number < workers) snprintf(name, sizeof name, "worker-%d", number);
        pid_t child = fork();
        if (child < 0) {
            perror("fork");
            return 1;
        }
        if (child == 0) {
            execl("/proc/self/exe", argv[0], name, (char *)0);
            _exit(1);
        }
    }
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF) {
    }
    return 0;
}
