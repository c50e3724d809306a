import { homedir } from 'node:os';
import { join } from 'node:path';
import { waitUntil } from '../../native/index.js';
import { NATIVE_DEVICES, type DeviceEnvironment, type Devices } from '../devices/index.js';
import type { NodeSettings } from '../../shared/config/node-settings.js';
import {
  InlinePromptEncoder,
  startPromptThread,
  ThreadedPromptEncoder,
  type PromptEncoder,
} from '../generation/index.js';
import { openServedPack } from '../loading/index.js';
import { multicastDiscovery, type Discovery } from '../../shared/discovery/index.js';
import { networkPaceOf } from '../../shared/emulation/index.js';
import type { Pack } from '../../shared/pack/open-pack.js';
import type { Tokenizer } from '../../shared/tokenizer/index.js';
import { GrpcTransport, type Transport } from '../../shared/rpc/index.js';
import { WallRuntime, type Runtime } from '../../shared/runtime/index.js';

/** Everything that a daemon takes from the world around it. One in a process of its own has the real one; a simulated one its own. */
export interface NodeEnvironment {
  readonly runtime: Runtime;
  readonly devices: Devices;
  readonly transport: Transport;
  readonly discovery: Discovery;
  /** Opens the pack that the daemon serves. Throws as openServedPack. */
  openPack(directory: string | null): Promise<Pack>;
  /** Makes tokens of prompts. */
  openPrompts(wanted: PromptsWanted): PromptEncoder;
  /** Where what is fetched is kept, unless the settings say otherwise. */
  readonly dataDirectory: string;
}

/** Of which model, and how many prompts may wait. */
export interface PromptsWanted {
  /** Of the pack. */
  directory: string;
  /** null: the model has none; prompts then come as token ids. */
  tokenizer: Tokenizer | null;
  queueLimit: number;
}

/** The real world; under emulation its devices and network take a profiled one's time. */
export function realEnvironment({ emulation }: Pick<NodeSettings, 'emulation'>): NodeEnvironment {
  const { runtime, devices } = realDevices();
  return {
    ...{ runtime, devices },
    transport: new GrpcTransport(runtime, networkPaceOf(emulation, runtime)),
    discovery: multicastDiscovery(runtime),
    openPack: (directory) => openServedPack(directory),
    openPrompts: ({ directory, tokenizer, queueLimit }) => {
      // A model without a tokenizer has nothing that a thread could do.
      if (tokenizer === null) return new InlinePromptEncoder(tokenizer);
      return new ThreadedPromptEncoder({ startThread: () => startPromptThread(directory), queueLimit, runtime });
    },
    dataDirectory: dataDirectory(process.env),
  };
}

/** This machine's clocks and devices, for what uses nothing else. */
export function realDevices(): DeviceEnvironment & { runtime: Runtime } {
  return { runtime: new WallRuntime(waitUntil), devices: NATIVE_DEVICES };
}

/** $XDG_DATA_HOME/odmoe, or ~/.local/share/odmoe. */
export function dataDirectory(variables: NodeJS.ProcessEnv): string {
  const configured = variables['XDG_DATA_HOME'];
  // The XDG specification: a relative path there is to be ignored.
  const base = configured?.startsWith('/') === true ? configured : join(homedir(), '.local', 'share');
  return join(base, 'odmoe');
}
