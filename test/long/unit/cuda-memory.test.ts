import { hasSimulatedCuda, type SimulatedDevice } from '../../integration/harness/simulated-cuda.js';
import { assertOperatorsEqual, RUN_LIMIT_MS } from '../../unit/cuda-programs.js';

/** Operators do not know how memory is given; whatever writes and reads experts does. */
const OF_MEMORY = ['memory', 'key_values', 'loading', 'expert_memory', 'expert_paging', 'expert_slots'];
const DEVICES: readonly SimulatedDevice[] = [
  { seed: 2, vmm: 0 },
  { seed: 3, integrated: 1 },
];

(hasSimulatedCuda('memory of CUDA devices') ? describe : describe.skip)(
  'the memory of CUDA devices (C++) of other kinds, simulated',
  function () {
    this.timeout(RUN_LIMIT_MS + 10_000);

    for (const device of DEVICES) {
      it(`keeps the orders of reads and writes: ${JSON.stringify(device)}`, () =>
        assertOperatorsEqual(device, OF_MEMORY));
    }
  },
);
