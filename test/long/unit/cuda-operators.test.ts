import { hasSimulatedCuda } from '../../integration/harness/simulated-cuda.js';
import { assertOperatorsEqual, LONG_GROUPS, RUN_LIMIT_MS } from '../../unit/cuda-programs.js';

(hasSimulatedCuda('attention and slots on CUDA devices') ? describe : describe.skip)(
  'attention and slots of experts of CUDA devices (C++) on the simulated device',
  function () {
    this.timeout(RUN_LIMIT_MS + 10_000);

    for (const group of LONG_GROUPS) {
      it(`equal the scalar processor's to the bit: ${group}`, () =>
        assertOperatorsEqual({ seed: 1, spareBytes: 0 }, [group]));
    }
  },
);
