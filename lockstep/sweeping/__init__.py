"""`lockstep sweep`: what a scenario's sweep stands for, run on many cores or machines, as one table.

`points` says what there is to run, `running` runs it on one of the `backends`, `store` keeps what is
finished, `table` is what comes of it, `sweep` puts them together.
"""
