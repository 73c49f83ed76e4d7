"""The verbs, each written once for every caller but an app in its own transaction.

Four kinds of callers call verbs. An app in its own transaction calls those of `relevo.client`: its database role is
its scope. A token, a phone with its proof and an operator call the functions here. Each of these does four things in
this order: it finds what the caller may reach, checks what is asked, acts by the verb of `relevo.client`, and writes
the audit log. HTTP routes, commands and pages only translate.
"""
