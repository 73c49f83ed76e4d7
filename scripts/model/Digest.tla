------------------------------- MODULE Digest -------------------------------
(* How the windows of digests divide the events that match a phone: each is in one digest, though transactions commit late, in any
   order, and the process that closes a slot may die between two slices.

   Each transaction that writes an event has a number, given when it begins. A slot's window reaches to the oldest transaction
   that is still under way when the slot is closed: whatever has a smaller number is committed, or never will be. *)
EXTENDS Naturals, FiniteSets

CONSTANTS
  MaxEvents,     \* transactions that write an event each
  Phones,
  MaxSlots,
  BY_SNAPSHOT,   \* TRUE: a window reaches to the oldest transaction under way; FALSE: to the newest begun
  CURSOR_WITH_SLICE  \* TRUE: a slice and its cursor are written in one transaction

VARIABLES
  begun,         \* the number of transactions begun
  open,          \* those under way
  committed,     \* the events that are there
  closing,       \* the slot being closed; 0: none
  closed,        \* the number of slots closed
  from, upto,    \* the window of the slot being closed: from < event <= upto
  written,       \* the phones that have their digest of this slot
  cursor,        \* the phones that the cursor has passed
  told           \* of each phone, how often each event was in a digest

vars == <<begun, open, committed, closing, closed, from, upto, written, cursor, told>>

Init ==
  /\ begun = 0 /\ open = {} /\ committed = {}
  /\ closing = 0 /\ closed = 0 /\ from = 0 /\ upto = 0
  /\ written = {} /\ cursor = {}
  /\ told = [p \in Phones |-> [e \in 1..MaxEvents |-> 0]]

Begin == begun < MaxEvents /\ begun' = begun + 1 /\ open' = open \union {begun + 1}
         /\ UNCHANGED <<committed, closing, closed, from, upto, written, cursor, told>>

Commit == \E e \in open : open' = open \ {e} /\ committed' = committed \union {e}
                          /\ UNCHANGED <<begun, closing, closed, from, upto, written, cursor, told>>

Rollback == \E e \in open : open' = open \ {e} /\ UNCHANGED <<begun, committed, closing, closed, from, upto, written, cursor, told>>

Oldest == IF open = {} THEN begun + 1 ELSE CHOOSE e \in open : \A other \in open : e <= other

(* A slot begins to close: its window is fixed in the table. *)
Open ==
  /\ closing = 0 /\ closed < MaxSlots
  /\ closing' = closed + 1
  /\ upto' = IF BY_SNAPSHOT THEN Oldest - 1 ELSE begun
  /\ written' = {} /\ cursor' = {}
  /\ UNCHANGED <<begun, open, committed, closed, from, told>>

(* The next phone's digest is written. *)
Slice ==
  \E p \in Phones \ cursor :
    /\ closing # 0
    /\ told' = [told EXCEPT ![p] = [e \in 1..MaxEvents |-> IF e \in committed /\ e > from /\ e <= upto THEN @[e] + 1 ELSE @[e]]]
    /\ written' = written \union {p}
    /\ cursor' = IF CURSOR_WITH_SLICE THEN cursor \union {p} ELSE cursor
    /\ UNCHANGED <<begun, open, committed, closing, closed, from, upto>>

(* Only a broken product moves the cursor by itself; whoever dies before it begins with the phone again. *)
Move ==
  \E p \in written \ cursor :
    /\ ~CURSOR_WITH_SLICE
    /\ cursor' = cursor \union {p}
    /\ UNCHANGED <<begun, open, committed, closing, closed, from, upto, written, told>>

Close ==
  /\ closing # 0 /\ cursor = Phones
  /\ closed' = closing /\ closing' = 0 /\ from' = upto
  /\ UNCHANGED <<begun, open, committed, upto, written, cursor, told>>

Next == Begin \/ Commit \/ Rollback \/ Open \/ Slice \/ Move \/ Close

Spec == Init /\ [][Next]_vars

----------------------------------------------------------------------------
NoneTwice == \A p \in Phones, e \in 1..MaxEvents : told[p][e] <= 1
NoneMissing == closing = 0 => \A p \in Phones, e \in committed : e <= from => told[p][e] = 1
============================================================================
