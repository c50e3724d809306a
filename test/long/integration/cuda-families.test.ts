import { answeringClusters } from '../../integration/harness/answering-clusters.js';
import { assertSameAnswer, requestFor } from '../../integration/harness/answers.js';
import { hasSimulatedCuda, simulatedCuda } from '../../integration/harness/simulated-cuda.js';

const CONTEXT_BYTES = 48 * 2 ** 20;

/** Between them: latent attention, FP8; MXFP4, sinks, biases; delta nets; norms of every branch; short convolutions, dense layers. */
const FAMILIES = ['deepseekv3-fp8', 'gptoss-mxfp4', 'qwen35moe', 'gemma4moe', 'lfm2moe'] as const;
const FAMILY_REQUEST = requestFor([1, 17, 250, 3, 88, 120, 9, 41, 7], { maxTokens: 8, logprobs: 200 });

for (const family of FAMILIES) {
  (hasSimulatedCuda('CUDA cluster') ? describe : describe.skip)(`${family} on CUDA devices (simulated)`, function () {
    this.timeout(300_000);
    const clusters = answeringClusters(`fixtures/${family}`, FAMILY_REQUEST);

    it('answers with the tokens and log-probabilities of the processor, to the bit', async () => {
      const running = await clusters.start(`fixtures/${family}`, 2, true, ['--draft-rows', '2'], {
        flags: () => ['--device', 'cuda'],
        environment: (id) => simulatedCuda({ contextBytes: CONTEXT_BYTES, seed: family.length + id.length }),
      });
      assertSameAnswer(await running.ask(FAMILY_REQUEST), clusters.expected);
    });
  });
}
