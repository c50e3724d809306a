import type { LocalEngine } from '../../../engine/generation/local-engine.js';
import type { GenerateRequest } from '../../../shared/wire/messages.js';
import { collect, type CollectedAnswer } from './answers.js';
import { ProcessCluster, endCluster } from './process-cluster.js';
import { openReference, type TestModel } from './test-models.js';

/** The clusters of the tests in one describe, and the answers that they must give. Each cluster ends with the test that started it. */
export interface AnsweringClusters {
  /** The single-process engine's answer to the request. */
  readonly expected: CollectedAnswer;
  /** The single-process engine's answer to another request. */
  reference(request: GenerateRequest): Promise<CollectedAnswer>;
  start(...of: Parameters<typeof ProcessCluster.start>): Promise<ProcessCluster>;
}

/** Call this in a describe: it registers hooks. If a test fails, the log of its cluster is printed. */
export function answeringClusters(model: TestModel, request: GenerateRequest): AnsweringClusters {
  let engine: LocalEngine | null = null;
  let expected: CollectedAnswer | null = null;
  let cluster: ProcessCluster | null = null;
  const reference = async (asked: GenerateRequest): Promise<CollectedAnswer> => {
    engine ??= await openReference(model);
    return collect(engine.generate(asked, new AbortController().signal));
  };

  before(async () => {
    expected = await reference(request);
  });

  after(() => engine?.dispose());

  afterEach(async function () {
    await endCluster(this, cluster);
    cluster = null;
  });

  return {
    get expected() {
      if (expected === null) throw new Error('asked for before the first test');
      return expected;
    },
    reference,
    async start(...of) {
      cluster = await ProcessCluster.start(...of);
      return cluster;
    },
  };
}
