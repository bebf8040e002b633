/*
 * The tensors that a launch of torch's kernels for lists uses. Some structures are laid out as in
 * torch's headers; others are filled in differently.
 */
#include "kernels/torch_tensor_lists.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "expect.h"

#define NAME(structure)                                                                                                \
    "_ZN2at6native12_GLOBAL__N_125multi_tensor_apply_kernelINS1_" structure                                            \
    "ENS1_20FusedAdamMathFunctorIfLi4EEEEEvT_T0_"
#define WORDS(count) ((count)*65536ll)
#define IN_A_ROW(blocks) ((struct ps_grid){(blocks), 1, 1})

struct plain {
    const void *addresses[3][48];
    int64_t elements[48];
    unsigned char tensor[320];
    int chunk[320];
    int first;
};

struct with_scalars {
    const void *addresses[2][64];
    int64_t elements[64];
    double scalar[64];
    unsigned char tensor[320];
    int chunk[320];
};

struct with_states {
    const void *addresses[4][36];
    int64_t elements[36];
    const void *state[36];
    unsigned char tensor[320];
    int chunk[320];
    int first;
};

struct large {
    const void *addresses[4][252];
    int64_t elements[252];
    const void *state[252];
    uint16_t tensor[2240];
    int chunk[2240];
    int first;
};

#define EXPECT_LAID_OUT(where, structure, how_many)                                                                    \
    do {                                                                                                               \
        const structure *none = NULL;                                                                                  \
        EXPECT_U64(how_many, (where).lists);                                                                           \
        EXPECT_U64(sizeof none->addresses[0] / 8, (where).capacity);                                                   \
        EXPECT_U64(sizeof none->tensor[0], (where).index_bytes);                                                       \
        EXPECT_U64(sizeof none->tensor / sizeof none->tensor[0], (where).blocks);                                      \
        EXPECT_U64(offsetof(structure, elements), (where).elements);                                                   \
        EXPECT_U64(offsetof(structure, tensor), (where).tensor);                                                       \
        EXPECT_U64(offsetof(structure, chunk), (where).chunk);                                                         \
    } while (0)

static struct ps_torch_tensor_lists of_first(const char *name, uint32_t bytes)
{
    return ps_torch_tensor_lists_of(name, &bytes, 1);
}

static void test_layouts(void)
{
    struct ps_torch_tensor_lists where = of_first(NAME("18TensorListMetadataILi3EE"), sizeof(struct plain));

    EXPECT_LAID_OUT(where, struct plain, 3);
    EXPECT_U64(0, where.states);
    where = of_first(NAME("28TensorListScalarListMetadataIdLi2EE"), sizeof(struct with_scalars));
    EXPECT_LAID_OUT(where, struct with_scalars, 2);
    EXPECT_U64(0, where.states);
    where = of_first(NAME("28TensorListScalarListMetadataIhLi1EE"), 3232);
    EXPECT_U64(1, where.lists);
    where = of_first(NAME("28TensorListScalarListMetadataIsLi2EE"), 3264);
    EXPECT_U64(2, where.lists);
    where = of_first(NAME("32FusedOptimizerTensorListMetadataILi4EE"), sizeof(struct with_states));
    EXPECT_LAID_OUT(where, struct with_states, 4);
    EXPECT_U64(offsetof(struct with_states, state), where.states);
    where = of_first(NAME("32FusedOptimizerTensorListMetadataILi4EE"), sizeof(struct large));
    EXPECT_LAID_OUT(where, struct large, 4);
    EXPECT_U64(offsetof(struct large, state), where.states);
    /* Two lists in a structure as large as three; the lists lie elsewhere in it. */
    where = of_first(NAME("18TensorListMetadataILi2EE"), sizeof(struct plain));
    EXPECT_U64(2, where.lists);
    EXPECT_U64(64, where.capacity);
}

static void test_what_is_none(void)
{
    static const struct {
        const char *name;
        uint32_t bytes;
    } none[] = {
        {NAME("18TensorListMetadataILi3EE"), sizeof(struct plain) + 8},
        {NAME("18TensorListMetadataILi6EE"), sizeof(struct plain)},
        {NAME("18TensorListMetadataILi0EE"), sizeof(struct plain)},
        {NAME("18TensorListMetadataIfEE"), sizeof(struct plain)},
        {NAME("19OtherListMetadataILi3EE"), sizeof(struct plain)},
        {NAME("32FusedOptimizerTensorListMetadataILi4EE"), sizeof(struct plain)},
        {"_ZN2at6native12_GLOBAL__N_120other_tensor_apply_kINS1_18TensorListMetadataILi3EEEEEvT_",
         sizeof(struct plain)},
        {NAME("28TensorListScalarListMetadataIN3c107complexIdEELi1EE"),
         3904}, /* as large as of 96 doubles, and holds 72 */
        {NULL, sizeof(struct plain)},
    };

    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        EXPECT_U64(0, of_first(none[i].name, none[i].bytes).lists);
}

static struct plain list;
static struct ps_torch_tensor_lists where;

/*
 * Three tensors of 2, 1 and 5 chunks; behind them is one of an earlier launch. An earlier launch
 * began the first tensor.
 */
static void fill(void)
{
    static const unsigned char tensor[] = {0, 1, 2, 2, 2};
    static const int chunk[] = {1, 0, 0, 1, 2};

    memset(&list, 0xa5, sizeof list);
    list.elements[0] = WORDS(2);
    list.elements[1] = 1;
    list.elements[2] = WORDS(4) + 1;
    memcpy(list.tensor, tensor, sizeof tensor);
    memcpy(list.chunk, chunk, sizeof chunk);
    where = of_first(NAME("18TensorListMetadataILi3EE"), sizeof list);
}

static void test_what_is_used(void)
{
    fill();
    EXPECT_U64(3, ps_torch_tensor_lists_used(&where, &list, IN_A_ROW(5)));
    EXPECT_U64(2, ps_torch_tensor_lists_used(&where, &list, IN_A_ROW(2)));
    EXPECT_U64(1, ps_torch_tensor_lists_used(&where, &list, IN_A_ROW(1)));
    EXPECT_U64(0, ps_torch_tensor_lists_used(&where, &list, IN_A_ROW(0)));
    EXPECT_U64(0, ps_torch_tensor_lists_used(&where, &list, IN_A_ROW(6))); /* the entry there belongs to no block */
    EXPECT_U64(0, ps_torch_tensor_lists_used(&where, &list, IN_A_ROW(321)));
    EXPECT_U64(0, ps_torch_tensor_lists_used(&(struct ps_torch_tensor_lists){0}, &list, IN_A_ROW(5)));
    /* As many tensors and blocks as there is room for. */
    for (int i = 0; i < 320; i++) {
        list.tensor[i] = (unsigned char)(i < 48 ? i : 47);
        list.chunk[i] = i < 48 ? 0 : i - 47;
    }
    for (int i = 0; i < 48; i++)
        list.elements[i] = i < 47 ? 1 : WORDS(1000);
    EXPECT_U64(48, ps_torch_tensor_lists_used(&where, &list, IN_A_ROW(320)));
}

#define EXPECT_NOT_USED(...)                                                                                           \
    do {                                                                                                               \
        fill();                                                                                                        \
        __VA_ARGS__;                                                                                                   \
        EXPECT_U64(0, ps_torch_tensor_lists_used(&where, &list, IN_A_ROW(5)));                                         \
    } while (0)

static void test_what_is_filled_in_otherwise(void)
{
    EXPECT_NOT_USED(list.tensor[0] = 1);
    EXPECT_NOT_USED(list.tensor[1] = 0);
    EXPECT_NOT_USED(list.tensor[2] = 3);
    EXPECT_NOT_USED(list.tensor[4] = 1);
    EXPECT_NOT_USED(list.tensor[4] = 48);
    EXPECT_NOT_USED(list.chunk[0] = -1);
    EXPECT_NOT_USED(list.chunk[0] = 2);
    EXPECT_NOT_USED(list.chunk[0] = 0); /* the tensor's last chunk is left out */
    EXPECT_NOT_USED(list.chunk[1] = 1);
    EXPECT_NOT_USED(list.chunk[3] = 0);
    EXPECT_NOT_USED(list.chunk[3] = 2);
    EXPECT_NOT_USED(list.elements[0] = 0);
    EXPECT_NOT_USED(list.elements[0] = WORDS(3));
    EXPECT_NOT_USED(list.elements[1] = -1);
    EXPECT_NOT_USED(list.elements[2] = WORDS(2));
}

/* In the larger structure, each block's tensor takes two bytes. */
static void test_more_tensors_than_a_byte_counts(void)
{
    static struct large many;
    const struct ps_torch_tensor_lists of_many =
        of_first(NAME("18TensorListMetadataILi4EE"), sizeof many - sizeof many.state);
    const struct ps_torch_tensor_lists with_state =
        of_first(NAME("32FusedOptimizerTensorListMetadataILi4EE"), sizeof many);

    EXPECT_U64(252, of_many.capacity);
    for (int i = 0; i < 252; i++) {
        many.tensor[i] = (uint16_t)i;
        many.elements[i] = 512;
    }
    EXPECT_U64(252, ps_torch_tensor_lists_used(&with_state, &many, IN_A_ROW(252)));
    EXPECT_U64(0, ps_torch_tensor_lists_used(&with_state, &many, IN_A_ROW(253)));
    many.tensor[251] = 251 - 1;
    many.chunk[251] = 1;
    EXPECT_U64(0, ps_torch_tensor_lists_used(&with_state, &many, IN_A_ROW(252)));
    many.elements[250] = 65537;
    EXPECT_U64(251, ps_torch_tensor_lists_used(&with_state, &many, IN_A_ROW(252)));
}

#define CAT(kernel, arguments)                                                                                         \
    "_ZN2at6native40_GLOBAL__N__0f1a8107_8_Shape_cu_49f7391c" kernel "INS1_10OpaqueTypeILj2EEE" arguments              \
    "EvPT_NS1_25CatArrInputTensorMetadataIS5_T0_XT2_EXT3_EEENS1_16TensorSizeStrideIS8_Lj4EEEiS8_"

struct cat {
    const void *input[128];
    unsigned offset[128], size[128], elements[128];
    bool is_contiguous[128];
    unsigned strides[1][8];
};

struct cat_with_strides {
    const void *input[64];
    unsigned offset[64], size[64], elements[64];
    bool is_contiguous[64];
    unsigned strides[64][8];
};

static struct ps_torch_tensor_lists of_cat(const char *name, uint32_t bytes)
{
    const uint32_t sizes[] = {8, bytes, 32, 4, 4};

    return ps_torch_tensor_lists_of(name, sizes, 5);
}

static void test_concatenation(void)
{
    static const struct {
        const char *name;
        uint32_t bytes, tensors;
    } known[] = {
        {CAT("19CatArrayBatchedCopy", "jLi1ELi128ELi1E"), sizeof(struct cat), 128},
        {CAT("26CatArrayBatchedCopy_contig", "jLi4ELi128ELi1E"), sizeof(struct cat), 128},
        {CAT("35CatArrayBatchedCopy_alignedK_contig", "jLi3ELi64ELi64ELi8E"), sizeof(struct cat_with_strides), 64},
        {CAT("36CatArrayBatchedCopy_aligned16_contig", "jLi4ELi64ELi64E"), sizeof(struct cat_with_strides), 64},
        {CAT("30CatArrayBatchedCopy_vectorized", "jLi4ELi128ELi1ELi16ELi1E"), sizeof(struct cat), 128},
    };
    static const struct {
        const char *name;
        uint32_t bytes;
    } none[] = {
        {CAT("19CatArrayBatchedCopy", "jLi1ELi128ELi1E"), sizeof(struct cat) + 8},
        {CAT("19CatArrayBatchedCopy", "jLi1ELi128ELi1E"), sizeof(struct cat_with_strides)},
        {CAT("19CatArrayBatchedCopy", "jLi1ELi64E"), sizeof(struct cat_with_strides)},
        {CAT("19CatArrayBatchedCopy", "jLi1ELi0ELi1E"), 32},
        {CAT("19CatArrayBatchedCopy", "jLi1ELi4294967424ELi1E"), sizeof(struct cat)},
        {CAT("19CatArrayBatchedCopy", "lLi1ELi128ELi1E"), sizeof(struct cat)},
        {CAT("19CatArrayBatchedMove", "jLi1ELi128ELi1E"), sizeof(struct cat)},
        {NULL, sizeof(struct cat)},
    };

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const struct ps_torch_tensor_lists of = of_cat(known[i].name, known[i].bytes);
        EXPECT_U64(1, of.parameter);
        EXPECT_U64(1, of.lists);
        EXPECT_U64(known[i].tensors, of.capacity);
        EXPECT_U64(0, of.states);
        EXPECT_U64(1, ps_torch_tensor_lists_used(&of, NULL, (struct ps_grid){264, 1, 1}));
        EXPECT_U64(2, ps_torch_tensor_lists_used(&of, NULL, (struct ps_grid){264, 2, 1}));
        EXPECT_U64(known[i].tensors, ps_torch_tensor_lists_used(&of, NULL, (struct ps_grid){1, known[i].tensors, 1}));
        EXPECT_U64(0, ps_torch_tensor_lists_used(&of, NULL, (struct ps_grid){1, known[i].tensors + 1, 1}));
        EXPECT_U64(0, ps_torch_tensor_lists_used(&of, NULL, (struct ps_grid){264, 2, 2}));
    }
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        EXPECT_U64(0, of_cat(none[i].name, none[i].bytes).lists);
    EXPECT_U64(0, ps_torch_tensor_lists_of(known[0].name, &known[0].bytes, 1).lists);
    EXPECT_U64(0, ps_torch_tensor_lists_of(known[0].name, NULL, 0).lists);
}

int main(void)
{
    test_concatenation();
    test_layouts();
    test_what_is_none();
    test_what_is_used();
    test_what_is_filled_in_otherwise();
    test_more_tensors_than_a_byte_counts();
    return expect_status();
}
