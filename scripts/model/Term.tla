-------------------------------- MODULE Term --------------------------------
(* How a cycle that only one process may run, as the nightly cleanup and export, runs once per slot.

   A process takes the cycle's lease, which raises the lease's term, and then raises the fence to that term. Each of its write
   transactions first looks whether the fence still has its term. A slot is a row that one run at a time can have; a run whose
   process is thought to be dead is marked as abandoned, and its slot is free again. A process that was only paused may go on
   at any time. *)
EXTENDS Naturals, FiniteSets

CONSTANTS
  Processes,
  Slots,         \* how many slots there are
  MaxTerm,       \* how often the lease is taken in all
  FENCED,        \* TRUE: each write looks at the fence; FALSE: the holder trusts its own clock
  ONE_RUN        \* TRUE: a slot is given to one run; FALSE: whoever comes may begin it

VARIABLES
  term,          \* the lease's term
  leased,        \* whether the lease has a holder whose time is not over
  fence,         \* the term that may write
  phase,         \* of each process: "idle", "leased", "holding", "running"
  own,           \* of each process, its term
  slot,          \* of each process, the slot it runs; 0: none
  run,           \* of each slot, the term of the run that has it; 0: none
  done,          \* of each slot, how many runs ended well
  last,          \* the term of the last write
  wrong          \* whether an earlier term wrote after a later one

vars == <<term, leased, fence, phase, own, slot, run, done, last, wrong>>

Init ==
  /\ term = 0 /\ leased = FALSE /\ fence = 0
  /\ phase = [p \in Processes |-> "idle"]
  /\ own = [p \in Processes |-> 0]
  /\ slot = [p \in Processes |-> 0]
  /\ run = [s \in 1..Slots |-> 0]
  /\ done = [s \in 1..Slots |-> 0]
  /\ last = 0 /\ wrong = FALSE

(* A process takes the lease that nobody has, or whose time is over. *)
Acquire ==
  \E p \in Processes :
    /\ phase[p] = "idle" /\ ~leased /\ term < MaxTerm
    /\ term' = term + 1
    /\ leased' = TRUE
    /\ own' = [own EXCEPT ![p] = term + 1]
    /\ phase' = [phase EXCEPT ![p] = "leased"]
    /\ UNCHANGED <<fence, slot, run, done, last, wrong>>

(* It raises the fence to its term, or finds that a successor did. *)
Raise ==
  \E p \in Processes :
    /\ phase[p] = "leased"
    /\ fence' = IF fence < own[p] THEN own[p] ELSE fence
    /\ phase' = [phase EXCEPT ![p] = IF fence < own[p] THEN "holding" ELSE "idle"]
    /\ UNCHANGED <<term, leased, own, slot, run, done, last, wrong>>

MayWrite(p) == FENCED => fence = own[p]

(* It begins the run of a slot that no run has and none has filled. *)
Begin ==
  \E p \in Processes, s \in 1..Slots :
    /\ phase[p] = "holding" /\ MayWrite(p)
    /\ ONE_RUN => (run[s] = 0 /\ done[s] = 0)
    /\ run' = [run EXCEPT ![s] = own[p]]
    /\ slot' = [slot EXCEPT ![p] = s]
    /\ phase' = [phase EXCEPT ![p] = "running"]
    /\ UNCHANGED <<term, leased, fence, own, done, last, wrong>>

(* It writes a part of its work. *)
Write ==
  \E p \in Processes :
    /\ phase[p] = "running" /\ MayWrite(p)
    /\ wrong' = (wrong \/ own[p] < last)
    /\ last' = own[p]
    /\ UNCHANGED <<term, leased, fence, phase, own, slot, run, done>>

(* It ends its run well; an abandoned run stays abandoned. *)
Finish ==
  \E p \in Processes :
    /\ phase[p] = "running" /\ MayWrite(p)
    /\ done' = [done EXCEPT ![slot[p]] = IF run[slot[p]] = own[p] \/ ~ONE_RUN THEN @ + 1 ELSE @]
    /\ run' = [run EXCEPT ![slot[p]] = IF @ = own[p] THEN 0 ELSE @]
    /\ phase' = [phase EXCEPT ![p] = "idle"]
    /\ slot' = [slot EXCEPT ![p] = 0]
    /\ leased' = IF own[p] = term THEN FALSE ELSE leased
    /\ UNCHANGED <<term, fence, own, last, wrong>>

(* A process that finds the fence raised lets its run go. *)
Lose ==
  \E p \in Processes :
    /\ phase[p] \in {"holding", "running"} /\ fence # own[p] /\ FENCED
    /\ phase' = [phase EXCEPT ![p] = "idle"]
    /\ slot' = [slot EXCEPT ![p] = 0]
    /\ UNCHANGED <<term, leased, fence, own, run, done, last, wrong>>

(* The lease's time is over: its holder died, or is paused. *)
Expire == leased /\ leased' = FALSE /\ UNCHANGED <<term, fence, phase, own, slot, run, done, last, wrong>>

(* A run of a former term is marked as abandoned. *)
Abandon ==
  \E s \in 1..Slots :
    /\ run[s] # 0 /\ run[s] < fence
    /\ run' = [run EXCEPT ![s] = 0]
    /\ UNCHANGED <<term, leased, fence, phase, own, slot, done, last, wrong>>

Crash ==
  \E p \in Processes :
    /\ phase[p] # "idle"
    /\ phase' = [phase EXCEPT ![p] = "idle"]
    /\ slot' = [slot EXCEPT ![p] = 0]
    /\ UNCHANGED <<term, leased, fence, own, run, done, last, wrong>>

Next == Acquire \/ Raise \/ Begin \/ Write \/ Finish \/ Lose \/ Expire \/ Abandon \/ Crash

Spec == Init /\ [][Next]_vars

----------------------------------------------------------------------------
FilledOnce == \A s \in 1..Slots : done[s] <= 1
NoStaleWrite == ~wrong
============================================================================
