/* Loaded into an engine: keeps a ledger of what is on its disk, stalls its disk, and shifts its clock.

   It shares one file with the harness (SCRATCHBUS_CONTROL), mapped into memory:
     skew      microseconds to add to the time of day
     stall     1: every sync of the engine itself waits, before it begins, for as long as this is 1
     stalled   1: a sync waits
   and appends "<inode> <bytes>" to the ledger (SCRATCHBUS_LEDGER) when a sync has ended: that many bytes of that file
   are on the disk. What a file holds beyond them is what a power cut takes. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct control {
    volatile int64_t skew, stall, stalled;
};

static struct control none, *control = &none;
static int ledger = -1;
static pid_t engine; /* and not a child of it that writes a snapshot */

__attribute__((constructor)) static void start(void) {
    const char *shared = getenv("SCRATCHBUS_CONTROL"), *written = getenv("SCRATCHBUS_LEDGER");
    int file = shared ? open(shared, O_RDWR | O_CLOEXEC) : -1;
    if (file >= 0) {
        void *mapped = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (mapped != MAP_FAILED) control = mapped;
        close(file);
    }
    engine = getpid();
    if (written) ledger = open(written, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
}

static int sync_file(int file, long call) {
    struct stat before;
    char line[64];
    int known = fstat(file, &before) == 0 && S_ISREG(before.st_mode);
    if (known && getpid() == engine) {
        while (control->stall) {
            control->stalled = 1;
            usleep(200);
        }
        control->stalled = 0;
    }
    int answer = (int)syscall(call, file);
    if (answer == 0 && known && ledger >= 0) {
        int length = snprintf(line, sizeof line, "%lu %ld\n", (unsigned long)before.st_ino, (long)before.st_size);
        if (write(ledger, line, (size_t)length) != length) abort(); /* else it would claim less than there is */
    }
    return answer;
}

int fsync(int file) { return sync_file(file, SYS_fsync); }

int fdatasync(int file) { return sync_file(file, SYS_fdatasync); }

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int answer = real(clock, now);
    if (answer == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t micros = (int64_t)now->tv_sec * 1000000 + now->tv_nsec / 1000 + control->skew;
        now->tv_sec = micros / 1000000;
        now->tv_nsec = micros % 1000000 * 1000 + now->tv_nsec % 1000;
    }
    return answer;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec precise;
    (void)zone;
    int answer = clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return answer;
}

time_t time(time_t *where) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (where) *where = precise.tv_sec;
    return precise.tv_sec;
}
