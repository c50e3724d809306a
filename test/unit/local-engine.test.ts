import assert from 'node:assert/strict';
import { LocalEngine } from '../../engine/generation/local-engine.js';
import { wrapHandle } from '../../native/index.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { packOf } from '../integration/harness/test-models.js';
import { ENVIRONMENT } from '../wall.js';

describe('the single-process engine', () => {
  it('releases the model where its shadow does not load', async () => {
    let opened = 0;
    let open = 0;
    const devices: typeof ENVIRONMENT.devices = {
      ...ENVIRONMENT.devices,
      open: (request) => {
        opened += 1;
        if (opened > 1) throw new OdmoeError('INTERNAL', 'no second device');
        const device = ENVIRONMENT.devices.open(request);
        open += 1;
        const dispose = (): void => {
          open -= 1;
          device.dispose();
        };
        return wrapHandle(device, { dispose });
      },
    };
    const opening = LocalEngine.open(await packOf('tiny'), {
      device: { backend: 'cpu', instructionSet: 'auto', threads: 1, budgetBytes: 0 },
      emulation: null,
      resident: null,
      shadow: 'int8',
      prefillRows: 16,
      chooseSeed: () => 1,
      onProgress: null,
      environment: { ...ENVIRONMENT, devices },
    });
    await assert.rejects(opening, { code: 'INTERNAL' });
    assert.deepEqual([opened, open], [2, 0]);
  });
});
