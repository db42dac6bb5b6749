#!/bin/sh
# Tells berth when its jobs begin and end. In slurm.conf both PrologSlurmctld and EpilogSlurmctld may name this file.
# It never blocks and never fails, so it cannot harm a job.
directory=@DIRECTORY@
case $SLURM_JOB_COMMENT in berth:*) ;; *) exit 0 ;; esac
case $SLURM_JOB_COMMENT in *[!A-Za-z0-9:._@-]*) exit 0 ;; esac
case $SLURM_SCRIPT_CONTEXT in prolog*) what=began ;; *) what=ended ;; esac
{
    echo "$(date +%s.%N) $what $SLURM_JOB_COMMENT $SLURM_JOB_ID" >>"$directory/told"
    # opened for reading too, so that writing to a pipe without a reader does not block
    [ ! -p "$directory/wake" ] || echo 1<>"$directory/wake"
} 2>/dev/null
exit 0
