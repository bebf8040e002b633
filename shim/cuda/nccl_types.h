/*
 * The few NCCL types that its calls are declared with. Handles are opaque and enumerations are int,
 * as in the ABI. Names and values are those of nccl.h of NCCL 2.32 (the wheel nvidia-nccl-cu13).
 * They have not changed since 2.0, or since the call that uses them was added.
 */
#ifndef PS_NCCL_TYPES_H
#define PS_NCCL_TYPES_H

#include <cuda.h>
#include <stddef.h>

typedef struct ncclComm *ncclComm_t;
typedef struct ncclWindow_vidmem *ncclWindow_t;

/* ncclResult_t */
enum {
    PS_NCCL_SUCCESS = 0,
    PS_NCCL_INVALID_USAGE = 5,
    PS_NCCL_IN_PROGRESS = 7, /* from a non-blocking communicator: an NCCL thread goes on with it */
};

/* ncclScalarResidence_t */
enum {
    PS_NCCL_SCALAR_DEVICE = 0,
};

/*
 * Returns the bytes of one element of an ncclDataType_t. For a newer type it returns the largest
 * size that any type has.
 */
static inline size_t ps_nccl_element_bytes(int datatype)
{
    static const unsigned char bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

    return datatype >= 0 && (size_t)datatype < sizeof bytes ? bytes[datatype] : 8;
}

#endif
