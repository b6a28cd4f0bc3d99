"""An example lane that runs on any CPU: scale_add, two torch operators against one."""
