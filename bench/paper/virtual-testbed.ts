import { NATIVE_DEVICES } from '../../engine/devices/devices.js';
import { LocalEngine } from '../../engine/generation/local-engine.js';
import { openServedPack } from '../../packs/open-served-pack.js';
import { loadDeviceProfile } from '../../engine/emulation/load-device-profile.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { VirtualClock } from '../../shared/base/runtime/virtual-clock.js';
import { VirtualRuntime } from '../../shared/base/runtime/virtual-runtime.js';
import { answerAll, startDaemons, stopDaemons } from '../../simulator/cluster/run-daemons.js';
import { SimulatedCluster } from '../../simulator/cluster/simulated-cluster.js';
import type { NodeWorld } from '../../simulator/cluster/simulated-node.js';
import { ProfiledLinks } from '../../simulator/network/link-model.js';
import { clusterSettings } from '../../simulator/simulate/cluster-settings.js';
import { SILENT } from '../../simulator/simulate/traced-world.js';
import { clusterSetUp } from './simulate-set-up.js';
import { answerRequest, collectAnswer, type CollectedAnswer } from '../../cli/client/measured-request.js';
import type { TestbedOptions } from './testbed.js';

const SEED = 1;
/** Interval of the check while only real work keeps a virtual clock waiting. */
const LOOK_AGAIN_MS = 1;

export interface VirtualTestbedOptions extends TestbedOptions {
  profilePath: string;
}

/** The testbed's daemons in this process. Their code and arithmetic are real; time and memory come from the profile. */
export class VirtualTestbed {
  private constructor(private readonly cluster: SimulatedCluster) {}

  /** Returns when main has placed every worker. Throws the reason why a daemon could not start. */
  static async start({ packPath, workers, setUp, precision, quantize, profilePath }: VirtualTestbedOptions) {
    const profile = loadDeviceProfile(profilePath);
    const pack = await openServedPack(packPath);
    const cluster = new SimulatedCluster({ links: () => new ProfiledLinks(profile), seed: SEED });
    const emulation = { profilePath, expertStorage: setUp.expertStorage };
    const daemons = clusterSettings(clusterSetUp(setUp, workers), packPath, 1).map((settings, index) => ({
      settings: {
        ...settings,
        emulation,
        shadow: { ...settings.shadow, precision, quantize },
        main: { ...settings.main, reusePrefixes: false },
        device: { ...settings.device, threads: 1 },
      },
      world: {
        devices: () => NATIVE_DEVICES,
        openPack: async () => pack,
        dataDirectory: packPath,
        log: SILENT,
        seed: index,
      } satisfies NodeWorld,
    }));
    await startDaemons(cluster, daemons);
    return new VirtualTestbed(cluster);
  }

  async answer(promptIds: readonly number[], tokens: number, signal: AbortSignal): Promise<CollectedAnswer> {
    const plan = { total: 1, atOnce: 1, signal };
    const [answer] = await answerAll(this.cluster, plan, () => answerRequest(promptIds, tokens));
    if (answer === undefined) throw new OdmoeError('INTERNAL', 'the testbed gave no answer');
    return { tokenIds: answer.tokens.map(({ tokenId }) => tokenId), finished: answer.finished };
  }

  stop(): Promise<void> {
    return stopDaemons(this.cluster);
  }
}

/** The profile's machine that holds the whole model: the single-process engine on a virtual clock. */
export class VirtualCached {
  private constructor(
    private readonly clock: VirtualClock,
    private readonly engine: LocalEngine,
  ) {}

  static async start(packPath: string, profilePath: string, prefillRows: number): Promise<VirtualCached> {
    const clock = new VirtualClock();
    const runtime = new VirtualRuntime(clock, SEED);
    const opening = LocalEngine.open(packPath, {
      device: { backend: 'cpu', instructionSet: 'auto', threads: 1, budgetBytes: 0 },
      resident: null,
      shadow: null,
      prefillRows,
      onProgress: null,
      emulation: { profilePath, expertStorage: 'fp32' },
      chooseSeed: () => 0,
      environment: { devices: NATIVE_DEVICES, runtime },
    });
    return new VirtualCached(clock, await driven(clock, opening));
  }

  answer(promptIds: readonly number[], tokens: number, signal: AbortSignal): Promise<CollectedAnswer> {
    const replies = this.engine.generate(answerRequest(promptIds, tokens), signal);
    return driven(this.clock, collectAnswer(replies));
  }

  stop(): void {
    this.engine.dispose();
  }
}

/** Lets the clock run until the promise has settled. The promise may wait for real work that the clock does not know. */
async function driven<Result>(clock: VirtualClock, promise: Promise<Result>): Promise<Result> {
  let over = false;
  const settled = Promise.allSettled([promise]).then(() => (over = true));
  while (!over) {
    if (clock.pendingCount > 0) await clock.run(() => over || clock.pendingCount === 0);
    else await Promise.race([settled, new Promise((resolve) => setTimeout(resolve, LOOK_AGAIN_MS))]);
  }
  return promise;
}
