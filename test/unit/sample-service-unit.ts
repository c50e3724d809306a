import type { ServiceUnit } from '../../cli/service/unit-text.js';

/** A worker as a service of the system. */
export const SERVICE_UNIT: ServiceUnit = {
  role: 'worker',
  scope: 'system',
  node: '/usr/bin/node',
  program: '/usr/lib/node_modules/odmoe/bin/odmoe',
  flags: ['--memory-budget', '4 GiB'],
  readsHomes: false,
  fetchesInto: null,
  deviceGroups: [],
  gpuStarter: null,
  tokenPath: null,
  memoryBytes: null,
  hasRestartSteps: false,
  stopMs: 40_000,
};
