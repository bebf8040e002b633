#include "cuda/address_map.h"

struct ps_reservation ps_reservation;
