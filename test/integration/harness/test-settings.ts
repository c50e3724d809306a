import { randomInt } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { defaultClusterConfig } from '../../../shared/settings/load-cluster-config.js';
import { resolveNodeSettings } from '../../../shared/settings/resolve-node-settings.js';
import type { NodeSettings } from '../../../shared/settings/node-settings.js';
import type { RoleSetting } from '../../../shared/settings/setting-choices.js';

/** Changes to the default settings of a daemon that uses this machine alone. */
export interface SettingsChanges {
  id?: string;
  stateDirectory?: string;
  cluster?: string;
  mainAddress?: string | null;
  /** Default: static. */
  provider?: NodeSettings['discovery']['provider'];
  /** null: no model is set, so a worker uses a pack of its own. */
  packDirectory?: string | null;
  device?: Partial<NodeSettings['device']>;
  main?: Partial<NodeSettings['main']>;
  batching?: Partial<NodeSettings['batching']>;
  align?: Partial<NodeSettings['align']>;
  groupSize?: number | 'auto';
  spread?: 'group' | 'all';
  homes?: 'group' | 'strict';
  replicas?: number;
  prediction?: NodeSettings['prediction'];
  drafting?: Partial<NodeSettings['drafting']>;
  emulation?: NodeSettings['emulation'];
  precision?: NodeSettings['shadow']['precision'];
  slots?: number;
  /** Settings of cache, policy, pools and loader. `slots` sets the working slots. */
  worker?: Partial<NodeSettings['worker']>;
  network?: Partial<NodeSettings['network']>;
  peers?: NodeSettings['discovery']['peers'];
}

/** Each test process has its own cluster name, so that the daemons of two test runs on one machine never connect. */
const CLUSTER = `test-${process.pid}-${randomInt(1_000_000)}`;

let ownStateDirectory: string | null = null;

/** The state directory of this test process. It is removed at the end of the process. */
function testStateDirectory(): string {
  if (ownStateDirectory !== null) return ownStateDirectory;
  const directory = mkdtempSync(join(tmpdir(), 'odmoe-test-state-'));
  process.once('exit', () => {
    rmSync(directory, { recursive: true, force: true });
  });
  return (ownStateDirectory = directory);
}

/** A busy machine may delay the one event loop of a whole cluster by seconds. No node may count as lost because of that. */
const PATIENT_NETWORK = { reconnectDelayMs: 50, keepaliveIntervalMs: 5000, keepaliveTimeoutMs: 20_000 };

/** Settings of a daemon on the loopback interface, with any free port, one thread and no multicast. */
export function testSettings(role: RoleSetting, packDirectory: string, changes: SettingsChanges = {}): NodeSettings {
  const model = changes.packDirectory === undefined ? packDirectory : changes.packDirectory;
  const defaults = resolveNodeSettings(role, defaultClusterConfig(), {
    discovery: 'static',
    ...(model === null ? {} : { model }),
    host: '127.0.0.1',
    port: 0,
    threads: 1,
    device: 'cpu',
    logLevel: 'debug',
    http: 'off',
    id: changes.id ?? role,
    cluster: changes.cluster ?? CLUSTER,
  });
  return {
    ...defaults,
    stateDirectory: changes.stateDirectory ?? testStateDirectory(),
    mainAddress: changes.mainAddress ?? null,
    discovery: {
      ...defaults.discovery,
      provider: changes.provider ?? defaults.discovery.provider,
      peers: changes.peers ?? [],
    },
    device: { ...defaults.device, ...changes.device },
    main: { ...defaults.main, ...changes.main },
    batching: { ...defaults.batching, ...changes.batching },
    align: { ...defaults.align, ...changes.align },
    placement: {
      groupSize: changes.groupSize ?? defaults.placement.groupSize,
      spread: changes.spread ?? defaults.placement.spread,
      homes: changes.homes ?? defaults.placement.homes,
      replicas: changes.replicas ?? defaults.placement.replicas,
    },
    prediction: changes.prediction ?? defaults.prediction,
    // Tests that draft say so: by default none does, and shadow alone where rows are wanted.
    drafting: { ...defaults.drafting, rows: 1, source: 'shadow', ...changes.drafting },
    emulation: changes.emulation ?? null,
    shadow: { ...defaults.shadow, precision: changes.precision ?? defaults.shadow.precision },
    worker: { ...defaults.worker, ...changes.worker, slots: changes.slots ?? 1 },
    network: { ...defaults.network, ...PATIENT_NETWORK, ...changes.network },
  };
}
