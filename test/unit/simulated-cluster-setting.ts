import type { EmulatedDevice } from '../../engine/emulation/device-profile.js';
import { plainShape } from '../../engine/emulation/plain-shape.js';
import { DEFAULT_SET_UP, type ClusterSetUp, type ClusterTimes } from '../../simulator/simulate/cluster-set-up.js';
import type { ClusterTrace, TracePlace } from '../../simulator/trace/cluster-trace.js';

/** Times that are easy to add up, for a model of this number of layers. A round trip takes 2 ms, and messages add no time to it. */
export function plainTimes(layers: number, loadMs: number, shadowLayerMs = 5): ClusterTimes {
  const device = (denseMs: number, expertMs: number, headMs: number): EmulatedDevice => ({
    attendLayers: [[{ overheadMs: denseMs, weightsMs: 0, rowMs: 0, context: [] }]],
    layersBehind: [],
    router: { overheadMs: 0, weightsMs: 0, rowMs: 0 },
    expert: { overheadMs: expertMs, weightsMs: 0, rowMs: 0 },
    lmHead: { overheadMs: headMs, weightsMs: 0, rowMs: 0 },
    loadMs,
    exponentShare: 0.5,
    recoverMs: 0,
    outerBytes: 0,
    denseLayerBytes: 0,
    expertBytes: 100,
    slotBytes: 100,
    slotSharedBytes: 0,
    exponentEntryBytes: 50,
    signMantissaEntryBytes: 50,
    cacheRowBytes: 8,
    stateBytes: 0,
  });
  return {
    main: device(10, 0, 1),
    shadow: device(shadowLayerMs * 0.8, shadowLayerMs * 0.2, 0),
    worker: device(0, 3, 0),
    network: { bytesPerS: 1e30, roundTripMs: 2, duplex: 'half', messageOverheadBytes: 0 },
    model: {
      quantization: 'none',
      shape: plainShape({
        layers,
        hiddenSize: 4,
        intermediateSize: 1,
        heads: 1,
        keyValueHeads: 1,
        headDim: 4,
        vocabSize: 1,
        experts: 2,
        expertsPerToken: 1,
      }),
    },
  };
}

/** A trace with one expert for each token, the same everywhere, which is always predicted and guessed. */
export class FlatTrace implements ClusterTrace {
  readonly experts = 2;
  readonly expertsPerToken = 1;
  readonly prompts = 1;

  constructor(
    readonly layers: number,
    private readonly answerIterations: number,
    private readonly predictedExpert = 0,
    private readonly guesses: (position: number) => boolean = () => true,
  ) {}

  promptTokens(): number {
    return 1;
  }

  iterations(): number {
    return this.answerIterations;
  }

  activated(): readonly number[] {
    return [0];
  }

  predicted({ onPath }: TracePlace): readonly number[] {
    return [onPath ? this.predictedExpert : 1];
  }

  guessedRight(_prompt: number, position: number): boolean {
    return this.guesses(position);
  }
}

export function setUp(changes: Partial<ClusterSetUp>): ClusterSetUp {
  return { ...DEFAULT_SET_UP, ...changes };
}
