-- Holds jobs that users submit to berth's partition; berth gives them their nodes and releases them. Jobs with options
-- that berth does not support are not held: Slurm places them as usual.
-- In slurm.conf: JobSubmitPlugins=lua, with this file as job_submit.lua beside it. If there is such a file already,
-- call berth_hold(job_desc, part_list) at the end of its slurm_job_submit.
local BERTH_PARTITION = "@PARTITION@"

-- Slurm's values for numbers that were not given
local BERTH_UNSET = { [0] = true, [0xfe] = true, [0xfffe] = true, [0xffff] = true, [0xfffffffe] = true, [0xffffffff] = true }
local BERTH_TEXTS = {
    "array_inx", "dependency", "req_nodes", "exc_nodes", "reservation", "licenses", "burst_buffer", "prefer",
    "batch_features", "tres_per_socket", "cpus_per_tres", "mem_per_tres",
}
local BERTH_NUMBERS = {
    "contiguous", "reboot", "pn_min_tmp_disk", "req_switch", "sockets_per_node", "cores_per_socket", "threads_per_core",
    "ntasks_per_socket", "ntasks_per_core",
}

local function berth_given(value)
    return value ~= nil and value ~= "" and value ~= false and not BERTH_UNSET[value] and value ~= 2 ^ 64 - 2
end

-- whether a job has options that berth does not support
local function berth_leaves(job_desc)
    for _, name in ipairs(BERTH_TEXTS) do
        if berth_given(job_desc[name]) then
            return true
        end
    end
    for _, name in ipairs(BERTH_NUMBERS) do
        if berth_given(job_desc[name]) then
            return true
        end
    end
    local offset = job_desc.het_job_offset
    if offset ~= nil and (offset == 0 or not BERTH_UNSET[offset]) then
        return true -- a component of a heterogeneous job
    end
    local shared = job_desc.shared
    if shared ~= nil and (shared == 0 or not BERTH_UNSET[shared]) then
        return true -- exclusive, or shared with others
    end
    if job_desc.min_mem_per_node == 0 or job_desc.min_mem_per_cpu == 0 then
        return true -- all memory
    end
    if job_desc.features ~= nil and string.find(job_desc.features, "[^%w_.=:&,-]") then
        return true -- more than features that each node must have
    end
    local most = job_desc.max_nodes
    if berth_given(most) and most ~= job_desc.min_nodes then
        return true -- from so many nodes to so many
    end
    return most ~= 1 and (berth_given(job_desc.tres_per_job) or berth_given(job_desc.tres_per_task))
end

function berth_hold(job_desc, part_list)
    local partition = job_desc.partition
    if partition == nil or partition == "" then -- the default one
        local ours = part_list and part_list[BERTH_PARTITION]
        if not ours or ours.flag_default ~= 1 then
            return
        end
    elseif partition ~= BERTH_PARTITION then
        return
    end
    if job_desc.comment ~= nil and string.match(job_desc.comment, "^berth:%x+:") then
        return -- submitted by berth itself
    end
    if not berth_leaves(job_desc) then
        job_desc.priority = 0
    end
end

function slurm_job_submit(job_desc, part_list, submit_uid)
    berth_hold(job_desc, part_list)
    return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
    return slurm.SUCCESS
end

return slurm.SUCCESS
