/** Two clusters of processes on this machine: one in plaintext on loopback, one with an authority. */
import { socketAddress } from '../../shared/wire/addresses.js';
import { isDeepStrictEqual } from 'node:util';
import { DemoCluster } from '../../cli/demo/demo-cluster.js';
import { transport } from '../../cli/client/process-runtime.js';
import { createCluster } from '../../engine/trust/create-cluster.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { operatorSocketPath, stateDirectory } from '../../shared/base/files/state-directory.js';
import { generate } from '../../shared/transport/node-clients.js';
import { answerRequest, collectAnswer, type CollectedAnswer } from '../../cli/client/measured-request.js';
import type { TrustRound } from './compare-trust.js';

export interface TrustSetUp {
  packPath: string;
  workers: number;
  /** Tokens of each answer. */
  tokens: number;
  /** The cluster with an authority is the first to start. */
  isTlsFirst: boolean;
}

const START_TIMEOUT_MS = 180_000;
const PROMPT_IDS = [1, 2, 3, 4, 5, 6, 7, 8];

export class TrustClusters {
  private constructor(
    private readonly plaintext: DemoCluster,
    private readonly trusted: DemoCluster,
    private readonly tokens: number,
  ) {}

  /**
   * Starts both. Their daemons keep their state under $XDG_STATE_HOME of this process, which should be a directory of this run alone. Workers join
   * by the operator's socket, without a code, because they have the state directory of main. Throws like DemoCluster.start; after an error, no
   * daemon runs.
   */
  static async start(
    { packPath, workers, tokens, isTlsFirst }: TrustSetUp,
    signal: AbortSignal,
  ): Promise<TrustClusters> {
    const options = {
      packPath,
      workers,
      shadow: 'none',
      groupSize: 'auto',
      alignTokenPeriod: 1,
      alignKeyValuePeriod: 1,
      startTimeoutMs: START_TIMEOUT_MS,
      flags: { main: ['--no-reuse-prefixes'] },
    } as const;
    const name = `trust-${process.pid}`;
    const state = stateDirectory(name);
    await createCluster(state, name);
    const clusters = new TrustClusters(
      new DemoCluster({ ...options, cluster: `plaintext-${process.pid}` }),
      new DemoCluster({ ...options, cluster: name, askAt: socketAddress(operatorSocketPath(state)) }),
      tokens,
    );
    try {
      for (const cluster of clusters.inTurn(isTlsFirst)) await cluster.start(signal);
      return clusters;
    } catch (thrown) {
      await clusters.stop();
      throw thrown;
    }
  }

  /** One answer of each cluster, one after the other. Throws INTERNAL if they differ, and the errors of requests. */
  async round(isTlsFirst: boolean, signal: AbortSignal): Promise<TrustRound> {
    const answers = new Map<DemoCluster, CollectedAnswer>();
    for (const cluster of this.inTurn(isTlsFirst)) answers.set(cluster, await this.answer(cluster, signal));
    const [plaintext, tls] = [answers.get(this.plaintext), answers.get(this.trusted)];
    if (!isDeepStrictEqual(plaintext?.tokenIds, tls?.tokenIds)) {
      throw new OdmoeError('INTERNAL', 'the cluster with an authority answered with other tokens than the one without');
    }
    return { plaintextMs: tokenMsOf(plaintext), tlsMs: tokenMsOf(tls) };
  }

  async stop(): Promise<void> {
    await Promise.all([this.plaintext.stop(), this.trusted.stop()]);
  }

  private inTurn(isTlsFirst: boolean): readonly DemoCluster[] {
    return isTlsFirst ? [this.trusted, this.plaintext] : [this.plaintext, this.trusted];
  }

  private answer(cluster: DemoCluster, signal: AbortSignal): Promise<CollectedAnswer> {
    const replies = generate(transport, cluster.mainAddress, answerRequest(PROMPT_IDS, this.tokens), signal);
    return cluster.whileMainRuns(collectAnswer(replies));
  }
}

/** By main's own clock, so that the way from main to this process does not count. */
function tokenMsOf(answer: CollectedAnswer | undefined): number {
  const tokensPerS = answer?.finished.timing?.decodeTokensPerS ?? 0;
  if (tokensPerS > 0) return 1000 / tokensPerS;
  throw new OdmoeError('INTERNAL', 'main reported no time of decoding');
}
