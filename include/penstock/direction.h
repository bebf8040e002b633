/* The direction of a layer, for annotations and policies alike. */
#ifndef PENSTOCK_DIRECTION_H
#define PENSTOCK_DIRECTION_H

enum penstock_direction {
    PENSTOCK_DIRECTION_NONE, /* neither, or not known: the update, an evaluation */
    PENSTOCK_DIRECTION_FORWARD,
    PENSTOCK_DIRECTION_BACKWARD,
};

#endif
