/* LD_PRELOAD: a process sees a wall clock that is off by the seconds in the file of BERTH_TEST_CLOCK,
   from the moment at which they are written. Monotonic clocks stay as they are, as in life. The
   second number of the file counts the readings that were off.

   libfaketime is no choice: with it, time.sleep of Python fails (clock_nanosleep answers EINVAL). */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset;

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("BERTH_TEST_CLOCK");
  int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *found = mmap(0, 2 * sizeof *offset, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (found != MAP_FAILED) offset = found;
}

static int64_t shift(void) {
  int64_t seconds = offset ? *offset : 0;
  if (seconds) offset[1]++;
  return seconds;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  int answer = (int)syscall(SYS_clock_gettime, clock, now);
  if (!answer && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += shift();
  return answer;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  int answer = (int)syscall(SYS_gettimeofday, now, zone);
  if (!answer) now->tv_sec += shift();
  return answer;
}

time_t time(time_t *now) {
  struct timespec found;
  clock_gettime(CLOCK_REALTIME, &found);
  if (now) *now = found.tv_sec;
  return found.tv_sec;
}
