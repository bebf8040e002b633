/* Which devices reach the memory of another: hooks_sharing.c. */
#ifndef PS_HOOKS_SHARING_H
#define PS_HOOKS_SHARING_H

/* The program lets device `peer` use what is allocated on device `ordinal`, both as the process numbers them. Spans are mapped for it before this returns. */
void ps_sharing_let_in(int ordinal, int peer);

#endif
