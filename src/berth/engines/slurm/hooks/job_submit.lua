-- Jobs that people submit to the partition of berth are held; berth gives them their nodes and releases them.
-- In slurm.conf: JobSubmitPlugins=lua, with this file as job_submit.lua beside it. Where there is such a file already,
-- call berth_hold(job_desc) at the end of its slurm_job_submit.
local BERTH_PARTITION = "@PARTITION@"

function berth_hold(job_desc)
    if job_desc.partition ~= BERTH_PARTITION then
        return
    end
    if job_desc.comment ~= nil and string.match(job_desc.comment, "^berth:%x+:") then
        return -- submitted by berth itself
    end
    job_desc.priority = 0
end

function slurm_job_submit(job_desc, part_list, submit_uid)
    berth_hold(job_desc)
    return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
    return slurm.SUCCESS
end

return slurm.SUCCESS
