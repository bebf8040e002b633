/*
 * The few types of NCCL's that its calls are declared with: handles are opaque, enumerations are int, as the ABI has them. Names and values are
 * those of nccl.h of NCCL 2.32 (the wheel nvidia-nccl-cu13); they are the same since 2.0, or since the call came that uses them.
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
    PS_NCCL_IN_PROGRESS = 7, /* of a communicator that does not block: a thread of NCCL's goes on with the call */
};

/* ncclScalarResidence_t */
enum {
    PS_NCCL_SCALAR_DEVICE = 0,
};

/* Bytes of one element by ncclDataType_t; of a type that is younger than this, the most that any has. */
static inline size_t ps_nccl_element_bytes(int datatype)
{
    static const unsigned char bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

    return datatype >= 0 && (size_t)datatype < sizeof bytes ? bytes[datatype] : 8;
}

#endif
