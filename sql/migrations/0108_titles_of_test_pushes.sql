-- needs relevo 0.3.0
-- Takes the titles of test pushes out of the audit, where 0.3.0 wrote them: forgetting a person would not find them there.

update relevo.audit_log set target = target - 'title' where action = 'send_test' and target ? 'title';
