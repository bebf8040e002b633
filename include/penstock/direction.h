/* The direction of a layer, for annotations and policies. */
#ifndef PENSTOCK_DIRECTION_H
#define PENSTOCK_DIRECTION_H

enum penstock_direction {
    PENSTOCK_DIRECTION_NONE, /* neither, or not known; for example the update or an evaluation */
    PENSTOCK_DIRECTION_FORWARD,
    PENSTOCK_DIRECTION_BACKWARD,
};

#endif
