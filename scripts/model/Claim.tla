------------------------------- MODULE Claim -------------------------------
(* How a delivery is claimed, journalled, sent, settled, reaped, and what late evidence does to it.

   A claim is a row with a token that is used once. Its holder is a process that may crash, or be paused for any time and
   then go on; so the holder's steps do not look at the claim's row unless the code does. A lease that ran out is a reaper's
   step that may happen at any time. The push service may take a message and its answer may be lost.

   The constants in capitals describe the product when they have their first value, and a broken twin otherwise. *)
EXTENDS Naturals, FiniteSets

CONSTANTS
  Deliveries,      \* what is to be sent
  Once,            \* those of them that are at most once
  MaxClaims,       \* how many claims are made in all
  MaxAttempts,     \* after how many unclear attempts a delivery has failed
  MaxRedrives,     \* how often a person may open a failed delivery again
  HasReceipts,     \* whether the push service says afterwards what it did not pass on
  HasDeadlines,    \* whether events have deadlines: what would be tried again after it ends
  FENCE,           \* "claim": who writes still stands in the claim; "worker": in any claim of its process; "none"
  JOURNAL_FIRST,   \* TRUE: a request is journalled before it begins
  LATE_STOPS,      \* TRUE: the journal looks for tickets that came late
  END_LOOKED_AT,   \* TRUE: the journal looks whether the event ended
  ONCE_GIVES_UP    \* TRUE: an at-most-once delivery is given up as unknown when its answer was not seen

VARIABLES
  made,            \* the number of claims made so far
  queue,           \* the deliveries in the queue
  standing,        \* the claims whose row is there
  holds,           \* of each claim, the deliveries in its row
  live,            \* the claims whose holder has not crashed
  requests,        \* the journal, by claim and delivery: "none", "open", "answered", "unsent", "doubt", "late"
  told,            \* what the holder knows, by claim and delivery: "nothing", "ticket", "kept", "unsent", "later", "refused", "doubt", "passed on"
  status,          \* of each delivery: "open", "sent", "failed", "unknown", "ended"
  attempts,        \* of each delivery, the attempts spent: each request that was not certainly stopped before the push service
  given_up_by,     \* of each delivery, the claim whose unseen answer was written last; 0: none
  late,            \* the deliveries with a ticket that came late and is not used yet
  ended,           \* the deliveries whose event ended: cancelled, completed, or its deadline is over
  redriven,        \* of each delivery, how often it was opened again
  taken,           \* how often the push service took each delivery, but for what it did not pass on
  wrong            \* what must never happen and did

vars == <<made, queue, standing, holds, live, requests, told, status, attempts, given_up_by, late, ended, redriven, taken, wrong>>

Claims == 1..MaxClaims
Worker(c) == c % 2

Init ==
  /\ made = 0
  /\ queue = Deliveries
  /\ standing = {}
  /\ holds = [c \in Claims |-> {}]
  /\ live = {}
  /\ requests = [c \in Claims |-> [d \in Deliveries |-> "none"]]
  /\ told = [c \in Claims |-> [d \in Deliveries |-> "nothing"]]
  /\ status = [d \in Deliveries |-> "open"]
  /\ attempts = [d \in Deliveries |-> 0]
  /\ given_up_by = [d \in Deliveries |-> 0]
  /\ late = {}
  /\ ended = {}
  /\ redriven = [d \in Deliveries |-> 0]
  /\ taken = [d \in Deliveries |-> 0]
  /\ wrong = {}

(* A worker claims some of what is due: chunk and claim change in one transaction. *)
Take ==
  \E ds \in SUBSET queue :
    /\ ds # {}
    /\ made < MaxClaims
    /\ made' = made + 1
    /\ queue' = queue \ ds
    /\ standing' = standing \union {made + 1}
    /\ holds' = [holds EXCEPT ![made + 1] = ds]
    /\ live' = live \union {made + 1}
    /\ UNCHANGED <<requests, told, status, attempts, given_up_by, late, ended, redriven, taken, wrong>>

IsHeld(c, d) == c \in standing /\ d \in holds[c]

(* Takes a delivery out of a claim; a claim that holds nothing goes. *)
LetGo(c, d) ==
  /\ holds' = [holds EXCEPT ![c] = @ \ {d}]
  /\ standing' = IF holds[c] \ {d} = {} THEN standing \ {c} ELSE standing

(* The holder journals a request, if nothing keeps the delivery from being sent. *)
Journal ==
  \E c \in Claims, d \in Deliveries :
    /\ c \in live /\ IsHeld(c, d)
    /\ requests[c][d] \in {"none", "unsent"}
    /\ LATE_STOPS => d \notin late
    /\ END_LOOKED_AT => d \notin ended
    /\ requests' = [requests EXCEPT ![c][d] = "open"]
    /\ told' = [told EXCEPT ![c][d] = "nothing"]
    /\ wrong' = wrong \union (IF d \in late THEN {"sent again though known"} ELSE {})
                      \union (IF d \in ended THEN {"journalled after its end"} ELSE {})
    /\ UNCHANGED <<made, queue, standing, holds, live, status, attempts, given_up_by, late, ended, redriven, taken>>

(* What the journal found not to be sent any more ends: as sent by a late ticket, else because its event or its phone is gone. *)
SetAside ==
  \E c \in Claims, d \in Deliveries :
    /\ c \in live /\ IsHeld(c, d)
    /\ requests[c][d] \in {"none", "unsent"}
    /\ LetGo(c, d)
    /\ status' = [status EXCEPT ![d] = IF d \in late THEN "sent" ELSE "ended"]
    /\ late' = late \ {d}
    /\ UNCHANGED <<made, queue, live, requests, told, attempts, given_up_by, ended, redriven, taken, wrong>>

(* The holder gives back what it has not begun: the rate is used up, or the process stops. *)
GiveBack ==
  \E c \in Claims, d \in Deliveries :
    /\ c \in live /\ IsHeld(c, d)
    /\ requests[c][d] \in {"none", "unsent"}
    /\ LetGo(c, d)
    /\ queue' = queue \union {d}
    /\ UNCHANGED <<made, live, requests, told, status, attempts, given_up_by, late, ended, redriven, taken, wrong>>

(* The message goes out, or the holder finds that it does not. Nothing of the database is looked at here. A message that is to come
   again later, as one that is refused for good, was not taken and costs an attempt; one that was not sent costs none. *)
Send ==
  \E c \in Claims, d \in Deliveries, answer \in {"ticket", "unsent", "later", "refused", "doubt, taken", "doubt, not taken"} :
    /\ c \in live
    /\ IF JOURNAL_FIRST THEN requests[c][d] \in {"open", "doubt"} ELSE IsHeld(c, d)
    /\ told[c][d] = "nothing"
    /\ told' = [told EXCEPT ![c][d] = IF answer \in {"ticket", "unsent", "later", "refused"} THEN answer ELSE "doubt"]
    /\ taken' = [taken EXCEPT ![d] = IF answer \in {"ticket", "doubt, taken"} THEN @ + 1 ELSE @]
    /\ UNCHANGED <<made, queue, standing, holds, live, requests, status, attempts, given_up_by, late, ended, redriven, wrong>>

(* The holder notes of a request that it was not taken, and keeps the delivery: it journals it again, or settles it. *)
NoteUnsent ==
  \E c \in Claims, d \in Deliveries :
    /\ c \in live /\ IsHeld(c, d)
    /\ requests[c][d] = "open" /\ told[c][d] \in {"unsent", "later", "refused"}
    /\ requests' = [requests EXCEPT ![c][d] = "unsent"]
    /\ UNCHANGED <<made, queue, standing, holds, live, told, status, attempts, given_up_by, late, ended, redriven, taken, wrong>>

(* Whether a holder may write what it knows of a delivery. *)
MayWrite(c, d) ==
  CASE FENCE = "claim" -> IsHeld(c, d)
    [] FENCE = "worker" -> \E other \in Claims : Worker(other) = Worker(c) /\ IsHeld(other, d)
    [] OTHER -> status[d] = "open"

(* What an attempt that cost something makes of a delivery. *)
AfterDoubt(d) ==
  IF d \in Once /\ ONCE_GIVES_UP THEN "unknown"
  ELSE IF attempts[d] + 1 >= MaxAttempts THEN "failed" ELSE "open"

(* Whether what is to be tried again would come after its deadline: then it ends. *)
TooLate == IF HasDeadlines THEN {FALSE, TRUE} ELSE {FALSE}

(* The holder writes what it was told, and takes the delivery out of the claim, in one transaction. What was not sent changes nothing
   about an attempt before it. *)
Settle ==
  \E c \in Claims, d \in Deliveries, too_late \in TooLate :
    /\ c \in live
    /\ told[c][d] \in {"ticket", "kept", "unsent", "later", "refused", "doubt"}
    /\ MayWrite(c, d)
    /\ LetGo(c, d)
    /\ LET answer == told[c][d]
           otherwise == CASE answer \in {"ticket", "kept"} -> "sent" [] answer = "unsent" -> "open" [] answer = "refused" -> "failed"
                          [] answer = "later" -> IF attempts[d] + 1 >= MaxAttempts THEN "failed" ELSE "open"
                          [] OTHER -> AfterDoubt(d)
           after == IF otherwise = "open" /\ too_late THEN "ended" ELSE otherwise
       IN /\ status' = [status EXCEPT ![d] = after]
          /\ queue' = IF after = "open" THEN queue \union {d} ELSE queue
          /\ attempts' = [attempts EXCEPT ![d] = IF answer = "unsent" THEN @ ELSE @ + 1]
          /\ requests' = [requests EXCEPT ![c][d] = CASE answer = "unsent" -> "unsent" [] answer = "doubt" -> "doubt" [] OTHER -> "answered"]
          /\ late' = IF answer = "kept" THEN late \ {d} ELSE late
          /\ given_up_by' = IF answer = "unsent" THEN given_up_by ELSE [given_up_by EXCEPT ![d] = 0]
    /\ told' = [told EXCEPT ![c][d] = "passed on"]
    /\ UNCHANGED <<made, live, ended, redriven, taken, wrong>>

(* What became of a message cannot be written for now: its ticket is kept at once, for whoever has the delivery next. *)
KeepAhead ==
  \E c \in Claims, d \in Deliveries :
    /\ c \in live
    /\ told[c][d] = "ticket" /\ status[d] = "open"
    /\ late' = late \union {d}
    /\ told' = [told EXCEPT ![c][d] = "kept"]
    /\ UNCHANGED <<made, queue, standing, holds, live, requests, status, attempts, given_up_by, ended, redriven, taken, wrong>>

(* A lease ran out, whether its holder is dead or only slow: the claim ends. What was never journalled is due again; what was
   journalled and not answered is in doubt; what a late ticket tells of was sent. *)
Reap ==
  \E c \in standing :
    LET doubted == {d \in holds[c] : requests[c][d] = "open"}
        after == [d \in holds[c] |-> IF d \in late THEN "sent" ELSE IF d \in doubted THEN AfterDoubt(d) ELSE "open"]
    IN /\ standing' = standing \ {c}
       /\ holds' = [holds EXCEPT ![c] = {}]
       /\ status' = [d \in Deliveries |-> IF d \in holds[c] THEN after[d] ELSE status[d]]
       /\ queue' = queue \union {d \in holds[c] : after[d] = "open"}
       /\ attempts' = [d \in Deliveries |-> IF d \in doubted THEN attempts[d] + 1 ELSE attempts[d]]
       /\ requests' = [requests EXCEPT ![c] = [d \in Deliveries |-> IF d \in doubted THEN "doubt" ELSE requests[c][d]]]
       /\ given_up_by' = [d \in Deliveries |-> IF d \in doubted THEN c ELSE given_up_by[d]]
       /\ late' = late \ holds[c]
       /\ UNCHANGED <<made, live, told, ended, redriven, taken, wrong>>

(* A ticket arrives after its claim was lost. What was given up for it, or ended unsent, is closed; else the ticket is kept for whoever has the
   delivery next. One that was kept before is used already, or will be. *)
KeepTicket ==
  \E c \in Claims, d \in Deliveries :
    /\ c \in live /\ ~IsHeld(c, d)
    /\ told[c][d] \in {"ticket", "kept"}
    /\ LET closes == told[c][d] = "ticket" /\ (status[d] \in {"unknown", "ended"} \/ (status[d] = "failed" /\ given_up_by[d] # 0))
       IN /\ status' = IF closes THEN [status EXCEPT ![d] = "sent"] ELSE status
          /\ late' = IF status[d] = "open" /\ told[c][d] = "ticket" THEN late \union {d} ELSE late
    /\ requests' = [requests EXCEPT ![c][d] = IF @ = "doubt" THEN "late" ELSE @]
    /\ told' = [told EXCEPT ![c][d] = "passed on"]
    /\ UNCHANGED <<made, queue, standing, holds, live, attempts, given_up_by, ended, redriven, taken, wrong>>

(* The holder learns after its claim was lost that the message never reached the push service: what was given up for it, and
   for nothing else, is opened again; what waits in the queue because of it has its attempt back. *)
OpenUnsent ==
  \E c \in Claims, d \in Deliveries :
    /\ c \in live /\ ~IsHeld(c, d)
    /\ told[c][d] = "unsent"
    /\ LET opens == status[d] \in {"unknown", "failed"} /\ given_up_by[d] = c
           returns == opens \/ (d \in queue /\ given_up_by[d] = c)
       IN /\ status' = IF opens THEN [status EXCEPT ![d] = "open"] ELSE status
          /\ queue' = IF opens THEN queue \union {d} ELSE queue
          /\ attempts' = IF returns THEN [attempts EXCEPT ![d] = @ - 1] ELSE attempts
          /\ given_up_by' = IF returns THEN [given_up_by EXCEPT ![d] = 0] ELSE given_up_by
    /\ requests' = [requests EXCEPT ![c][d] = IF @ = "doubt" THEN "unsent" ELSE @]
    /\ told' = [told EXCEPT ![c][d] = "passed on"]
    /\ UNCHANGED <<made, standing, holds, live, late, ended, redriven, taken, wrong>>

(* The app cancels, and is told so. What waits ends at once; what is claimed is left to its holder. *)
Cancel ==
  \E d \in Deliveries \ ended :
    /\ status[d] = "open"
    /\ ended' = ended \union {d}
    /\ IF d \in queue
         THEN /\ queue' = queue \ {d}
              /\ status' = [status EXCEPT ![d] = IF d \in late THEN "sent" ELSE "ended"]
              /\ late' = late \ {d}
         ELSE UNCHANGED <<queue, status, late>>
    /\ UNCHANGED <<made, standing, holds, live, requests, told, attempts, given_up_by, redriven, taken, wrong>>

(* A person opens a failed delivery again. *)
Redrive ==
  \E d \in Deliveries :
    /\ redriven[d] < MaxRedrives /\ status[d] = "failed" /\ d \notin ended
    /\ redriven' = [redriven EXCEPT ![d] = @ + 1]
    /\ status' = [status EXCEPT ![d] = "open"]
    /\ queue' = queue \union {d}
    /\ attempts' = [attempts EXCEPT ![d] = 0]
    /\ given_up_by' = [given_up_by EXCEPT ![d] = 0]
    /\ UNCHANGED <<made, standing, holds, live, requests, told, late, ended, taken, wrong>>

(* A receipt says that a push was not passed on: it is tried again, or given up. *)
Receipt ==
  \E d \in Deliveries, after \in {"open", "failed"} :
    /\ HasReceipts /\ status[d] = "sent" /\ taken[d] > 0
    /\ status' = [status EXCEPT ![d] = after]
    /\ queue' = IF after = "open" THEN queue \union {d} ELSE queue
    /\ taken' = [taken EXCEPT ![d] = @ - 1]
    /\ given_up_by' = [given_up_by EXCEPT ![d] = 0]
    /\ UNCHANGED <<made, standing, holds, live, requests, told, attempts, late, ended, redriven, wrong>>

(* A process dies: what it knew is gone. *)
Crash ==
  \E c \in live :
    /\ live' = live \ {c}
    /\ told' = [told EXCEPT ![c] = [d \in Deliveries |-> "nothing"]]
    /\ UNCHANGED <<made, queue, standing, holds, requests, status, attempts, given_up_by, late, ended, redriven, taken, wrong>>

Next == Take \/ Journal \/ SetAside \/ GiveBack \/ Send \/ NoteUnsent \/ Settle \/ KeepAhead \/ Reap \/ KeepTicket \/ OpenUnsent \/ Cancel \/ Redrive \/ Receipt \/ Crash

Spec == Init /\ [][Next]_vars

----------------------------------------------------------------------------
(* What must hold in every state. *)

Places(d) == Cardinality({c \in standing : d \in holds[c]}) + (IF d \in queue THEN 1 ELSE 0)
Doubts(d) == Cardinality({c \in Claims : requests[c][d] \in {"doubt", "late"}})

InOnePlace == \A d \in Deliveries : Places(d) = (IF status[d] = "open" THEN 1 ELSE 0)
SentWasTaken == \A d \in Deliveries : status[d] = "sent" => taken[d] > 0
DoubledOnlyInDoubt == \A d \in Deliveries : taken[d] <= 1 + Doubts(d)
AtMostOnce == \A d \in Once : taken[d] <= 1
NothingWrong == wrong = {}
============================================================================
