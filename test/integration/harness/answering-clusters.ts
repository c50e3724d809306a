import type { LocalEngine } from '../../../engine/generation/local-engine.js';
import type { GenerateRequest } from '../../../shared/wire/messages.js';
import { collect, type CollectedAnswer } from './answers.js';
import { ProcessCluster, endCluster } from './process-cluster.js';
import { openReference, type TestModel } from './test-models.js';

/** What the tests of one describe ask of their clusters, each of which ends with the test that has started it. */
export interface AnsweringClusters {
  /** What the single-process engine answers to the request. */
  readonly expected: CollectedAnswer;
  /** The single-process engine's answer to another request. */
  reference(request: GenerateRequest): Promise<CollectedAnswer>;
  start(...of: Parameters<typeof ProcessCluster.start>): Promise<ProcessCluster>;
}

/** In a describe: registers its hooks. The clusters' logs are shown when a test fails. */
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
