/*
 * A layer's name: the number and the direction that are read from it are those that a second
 * reading finds, and a name is kept once.
 */
#include "tests/fuzz/fuzz.h"

#include <ctype.h>
#include <strings.h>

#include "kernels/layouts.h"
#include "plan/layer_markers.h"
#include "plan/layer_names.h"

/* Stand in for shim/kernels/layouts.c, which needs a driver. */
static unsigned generation;

unsigned ps_layouts_generation(void)
{
    return generation;
}

const char *ps_layouts_kernel_name(CUfunction function)
{
    return (const char *)function;
}

static const char *const words[] = {"forward", "backward", "fwd", "bwd"};

static bool is_word(const char *at, size_t word)
{
    return strncasecmp(at, words[word], strlen(words[word])) == 0;
}

static bool is_ascii_letter(char c)
{
    return isascii((unsigned char)c) && isalpha((unsigned char)c);
}

/* The last word that says a direction: a whole word, or a part that begins with a capital. */
static enum penstock_direction direction_of(const char *name)
{
    enum penstock_direction direction = PENSTOCK_DIRECTION_NONE;

    for (size_t i = 0; name[i]; i++) {
        for (size_t w = 0; w < 4; w++) {
            if (!is_word(name + i, w))
                continue;
            bool whole = (i == 0 || !is_ascii_letter(name[i - 1])) && !is_ascii_letter(name[i + strlen(words[w])]);
            if (whole || name[i] == 'F' || name[i] == 'B')
                direction = w % 2 ? PENSTOCK_DIRECTION_BACKWARD : PENSTOCK_DIRECTION_FORWARD;
        }
    }
    return direction;
}

/* The last run of digits that is small enough, and does not belong to such a word. */
static uint32_t number_of(const char *name)
{
    uint32_t number = PENSTOCK_NEVER;

    for (size_t i = 0; name[i];) {
        size_t digits = strspn(name + i, "0123456789");
        bool is_of_word = false;
        for (size_t w = 0; w < 4; w++)
            is_of_word |= i >= strlen(words[w]) && is_word(name + i - strlen(words[w]), w);
        if (digits && !is_of_word) {
            unsigned long long value = strtoull(name + i, NULL, 10); /* its limit is large enough */
            number = value < PS_LAYERS_UNNUMBERED ? (uint32_t)value : number;
        }
        i += digits ? digits : 1;
    }
    return number;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz_input in = {data, bytes};
    char *text = fuzz_text(&in, '\0');
    uint32_t number = 1;
    enum penstock_direction direction = PENSTOCK_DIRECTION_BACKWARD;

    ps_layer_names_read(text, &number, &direction);
    fuzz_require(direction == direction_of(text));
    fuzz_require(number == number_of(text));
    struct ps_layer_name *name = ps_layer_name_keep(text);
    if (name) { /* otherwise the table is full */
        fuzz_require(name->text != text && !strcmp(name->text, text) && ps_layer_name_keep(text) == name);
        fuzz_require(name->direction == direction);
        fuzz_require(number == PENSTOCK_NEVER ? name->number >= PS_LAYERS_UNNUMBERED && name->number != PENSTOCK_NEVER
                                              : name->number == number);
        generation++; /* the handle was another text's before */
        fuzz_require(ps_layer_name_of_kernel((CUfunction)text, "*") == name);
        generation++;
        fuzz_require(ps_layer_name_of_kernel((CUfunction)text, "") == (*text ? NULL : name));
    }
    free(text);
    return 0;
}
