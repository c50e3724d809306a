import { wrapHandle } from '../../native/index.js';

/** Kinds of device handles that a process can hold. */
export const HANDLE_KINDS = ['devices', 'models', 'sequences', 'passes', 'slots'] as const;
type HandleKind = (typeof HANDLE_KINDS)[number];
export type HandleCounts = Record<HandleKind, number>;

export function noHandles(): HandleCounts {
  return { devices: 0, models: 0, sequences: 0, passes: 0, slots: 0 };
}

/** The handle with some of its methods replaced; it is counted until it is disposed of. */
export function counted<Handle extends { dispose(): void }>(
  handle: Handle,
  handles: HandleCounts,
  kind: HandleKind,
  methods: Partial<Handle>,
): Handle {
  handles[kind] += 1;
  let open = true;
  const { dispose } = methods;
  const replaced: Partial<Handle> = { ...methods };
  replaced.dispose = () => {
    if (open) handles[kind] -= 1;
    open = false;
    if (dispose === undefined) handle.dispose();
    else dispose();
  };
  return wrapHandle(handle, replaced);
}
