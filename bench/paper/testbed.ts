import { DemoCluster } from '../../cli/demo/demo-cluster.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { transport } from '../../cli/client/process-runtime.js';
import type { Finished, GenerateReply, GenerateRequest } from '../../shared/wire/messages.js';
import { daemonFlags, shadowOf, type SetUp, type ShadowPrecision, type ShadowQuantize } from './set-up.js';

/** Ten processes start on however few cores there are, each with a model to load. */
const START_TIMEOUT_MS = 180_000;

export interface TestbedOptions {
  packPath: string;
  workers: number;
  setUp: SetUp;
  /** How the shadow's arithmetic is quantized; its time and memory are the profile's. */
  precision: ShadowPrecision;
  /** What of the shadow is quantized. */
  quantize: ShadowQuantize;
  /** Null: the daemons take the time and memory of this machine. */
  profilePath: string | null;
}

/** One answer of a fixed number of tokens, greedy. */
export interface TestbedAnswer {
  tokenIds: number[];
  finished: Finished;
}

/** Main, shadow (where the set-up has one) and workers as daemons of their own on this machine, over real gRPC. */
export class Testbed {
  private constructor(private readonly cluster: DemoCluster) {}

  /** Returns when main has placed every worker. Throws as DemoCluster.start; then nothing runs any more. */
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

  answer(promptIds: readonly number[], tokens: number, signal: AbortSignal): Promise<TestbedAnswer> {
    const replies = transport.generate(this.cluster.mainAddress, answerRequest(promptIds, tokens), signal);
    return this.cluster.whileMainRuns(collectAnswer(replies));
  }

  stop(): Promise<void> {
    return this.cluster.stop();
  }
}

/** Greedy, `tokens` tokens whatever they are. */
export function answerRequest(promptIds: readonly number[], tokens: number): GenerateRequest {
  return {
    text: '',
    messages: [],
    promptTokenIds: [...promptIds],
    raw: true,
    stop: [],
    maxTokens: tokens,
    sampling: null,
    ignoreEos: true,
    logprobs: 0,
  };
}

export async function collectAnswer(replies: AsyncIterable<GenerateReply>): Promise<TestbedAnswer> {
  const tokenIds: number[] = [];
  let finished: Finished | null = null;
  for await (const reply of replies) {
    if (reply.kind === 'token') tokenIds.push(reply.token.tokenId);
    if (reply.kind === 'finished') finished = reply.finished;
  }
  if (finished === null) throw new OdmoeError('PROTOCOL_VIOLATION', 'an answer ended without its last message');
  return { tokenIds, finished };
}
