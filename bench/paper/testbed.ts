import { DemoCluster } from '../../cli/demo/demo-cluster.js';
import { generate } from '../../shared/transport/node-clients.js';
import { transport } from '../../cli/client/process-runtime.js';
import { answerRequest, collectAnswer, type CollectedAnswer } from '../../cli/client/measured-request.js';
import { daemonFlags, shadowOf, type SetUp, type ShadowQuantize } from './set-up.js';
import type { ShadowPrecision } from '../../shared/settings/setting-choices.js';

/** Ten processes must start and load a model each, even on a machine with few cores. */
const START_TIMEOUT_MS = 180_000;

export interface TestbedOptions {
  packPath: string;
  workers: number;
  setUp: SetUp;
  /** Quantization of the shadow's arithmetic; its time and memory come from the profile. */
  precision: ShadowPrecision;
  /** The part of the shadow that is quantized. */
  quantize: ShadowQuantize;
  /** Null: the daemons use the time and memory of this machine. */
  profilePath: string | null;
}

/** Main, shadow (if the set-up has one) and workers as separate daemons on this machine, over real gRPC. */
export class Testbed {
  private constructor(private readonly cluster: DemoCluster) {}

  /** Returns when main has placed every worker. Throws like DemoCluster.start; after an error, no daemon runs. */
  static async start(
    { packPath, workers, setUp, precision, quantize, profilePath }: TestbedOptions,
    signal: AbortSignal,
  ): Promise<Testbed> {
    const cluster = new DemoCluster({
      packPath,
      workers,
      shadow: shadowOf(setUp, precision),
      groupSize: 'auto',
      startTimeoutMs: START_TIMEOUT_MS,
      alignTokenPeriod: setUp.alignTokenPeriod,
      alignKeyValuePeriod: setUp.alignKeyValuePeriod,
      flags: daemonFlags(setUp, quantize, profilePath),
    });
    try {
      await cluster.start(signal);
      return new Testbed(cluster);
    } catch (thrown) {
      await cluster.stop();
      throw thrown;
    }
  }

  answer(promptIds: readonly number[], tokens: number, signal: AbortSignal): Promise<CollectedAnswer> {
    const replies = generate(transport, this.cluster.mainAddress, answerRequest(promptIds, tokens), signal);
    return this.cluster.whileMainRuns(collectAnswer(replies));
  }

  stop(): Promise<void> {
    return this.cluster.stop();
  }
}
