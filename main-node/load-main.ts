import type { NodeEnvironment } from '../engine/environment/node-environment.js';
import { fillNodeDevice } from '../engine/devices/open-node-device.js';
import { SharedDevice } from '../engine/devices/shared-device.js';
import type { PromptEncoder } from '../engine/generation/prompt-encoder.js';
import { loadDenseWeights } from '../engine/loading/load-weights.js';
import type { Device, Model } from '../native/index.js';
import type { Pack } from '../packs/format/open-pack.js';
import type { NodeSettings } from '../shared/config/node-settings.js';
import { mostActiveSequences } from '../shared/config/setting-limits.js';
import { requireWanted } from '../shared/daemon/run-daemon.js';
import type { Logger } from '../shared/log/logger.js';
import { openTokenizer } from '../shared/tokenizer/load-tokenizer.js';
import type { Tokenizer } from '../shared/tokenizer/tokenizer.js';

/** What main has read before it serves anybody. */
export interface LoadedMain {
  source: Pack;
  tokenizer: Tokenizer | null;
  prompts: PromptEncoder;
  device: Device;
  /** The same, for who else is to use it. */
  sharedDevice: SharedDevice;
  deviceReason: string;
  weightBytes: number;
  model: Model;
}

/** Reads all but the experts. What cannot be opened or loaded is thrown. */
export async function loadMain(
  settings: NodeSettings,
  environment: NodeEnvironment,
  log: Logger,
  abandoned: AbortSignal,
): Promise<LoadedMain> {
  const { runtime } = environment;
  const source = await environment.openPack(settings.modelPath);
  const tokenizer = await runtime.outside(() => openTokenizer(source.directory));
  const { maxActiveSequences, maxQueuedRequests } = settings.main;
  const queueLimit = mostActiveSequences(maxActiveSequences) + maxQueuedRequests;
  const prompts = environment.openPrompts({ directory: source.directory, tokenizer, queueLimit });
  try {
    return await loadDevice(settings, environment, { source, tokenizer, prompts }, log, abandoned);
  } catch (thrown) {
    await prompts.close();
    throw thrown;
  }
}

function loadDevice(
  settings: NodeSettings,
  environment: NodeEnvironment,
  opened: Pick<LoadedMain, 'source' | 'tokenizer' | 'prompts'>,
  log: Logger,
  abandoned: AbortSignal,
): Promise<LoadedMain> {
  const { source } = opened;
  return fillNodeDevice(environment, settings, log, async ({ device: ownDevice, reason: deviceReason }) => {
    const sharedDevice = new SharedDevice(ownDevice);
    const device = sharedDevice.open();
    const model = device.createModel(source.shape);
    try {
      await loadDenseWeights(model, source, source.shippedFormat, () => requireWanted(abandoned));
    } catch (thrown) {
      model.dispose();
      throw thrown;
    }
    const { usedBytes, contextBytes } = device.info();
    log.info('model loaded', { model: source.name, deviceMemoryBytes: usedBytes });
    return { ...opened, device, sharedDevice, deviceReason, weightBytes: usedBytes - contextBytes, model };
  });
}

export async function disposeLoaded({ prompts, model, device }: LoadedMain): Promise<void> {
  await prompts.close();
  model.dispose();
  device.dispose();
}

/** Only a GPU may be told to be quicker than exact. */
export function arithmeticOf({ device }: NodeSettings, loaded: Pick<LoadedMain, 'device'>): 'exact' | 'fast' {
  return loaded.device.info().backend === 'cuda' ? device.arithmetic : 'exact';
}
