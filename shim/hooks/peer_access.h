/* Which devices reach the memory of another: peer_access.c. */
#ifndef PS_PEER_ACCESS_H
#define PS_PEER_ACCESS_H

/*
 * The program lets device `peer` use memory allocated on device `ordinal`, both as the process
 * numbers them. Spans are mapped for `peer` before this returns.
 */
void ps_sharing_let_in(int ordinal, int peer);

#endif
