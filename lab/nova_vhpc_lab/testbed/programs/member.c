// SPDX-FileCopyrightText: nova-vhpc developers
// SPDX-License-Identifier: Apache-2.0

/*
 * One member of a virtual cluster that spans hosts, as an ordinary process. In
 * a loop, it computes a little, then spins until all members have done so, like
 * MPI with busy polling over a network without latency.
 *
 *   member FILE SIZE: the members' shared page, and the number of members
 */

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

struct shared {
    volatile uint64_t work;
    char pad[56];
    volatile int count;
    char more[60];
    volatile int sense;
};

static volatile double sink;

int main(int argc, char **argv)
{
    int fd = argc == 3 ? open(argv[1], O_RDWR) : -1;
    int size = argc == 3 ? atoi(argv[2]) : 0;
    struct shared *shared;
    int sense = 0;

    if (fd < 0)
        return 2;
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED,
                  fd, 0);
    if (shared == MAP_FAILED)
        return 1;
    for (;;) {
        for (int i = 0; i < 2000; i++)
            sink += i * 0.5;
        sense = !sense;
        if (__sync_add_and_fetch(&shared->count, 1) == size) {
            shared->work++;
            shared->count = 0;
            __sync_synchronize();
            shared->sense = sense;
        } else {
            while (shared->sense != sense)
                ;
        }
    }
}
