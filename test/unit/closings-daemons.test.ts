import assert from 'node:assert/strict';
import type { NodeEnvironment } from '../../engine/environment/node-environment.js';
import { SharedDevice } from '../../engine/devices/shared-device.js';
import { InlinePromptEncoder } from '../../engine/generation/prompt-encoder.js';
import { startMain } from '../../main-node/main.js';
import { OdmoeError } from '../../shared/errors/odmoe-error.js';
import { startShadow } from '../../shadow-node/main.js';
import { startWorker } from '../../worker-node/main.js';
import { packOf } from '../integration/harness/test-models.js';
import { testSettings } from '../integration/harness/test-settings.js';
import { waitUntil } from '../integration/harness/wait-until.js';
import { ENVIRONMENT } from '../wall.js';
import { type Closing, HeldWork, itWaitsForWork } from './held-work.js';
import { silentLog } from './worker-test-slots.js';

const START = { main: startMain, shadow: startShadow, worker: startWorker };

/** Parts of a daemon's surroundings that take their time to end. */
type Part = 'server' | 'announcement' | 'search' | 'join' | 'prompts' | 'formats' | 'ownWorker';

/** A daemon that is stopped while the part is slow to end. Its device goes at the end. */
async function stopping(role: keyof typeof START, late: Part): Promise<Closing> {
  const work = new HeldWork();
  const ending = <Result>(part: Part, end: () => Result | Promise<Result>): Promise<Result> =>
    part === late ? work.whenLetGo(end) : Promise.resolve(end());
  let devices = 0;
  const { transport } = ENVIRONMENT;
  const environment: NodeEnvironment = {
    ...ENVIRONMENT,
    measureReads: null,
    chooseResident: null,
    createHttpServer: null,
    transport: Object.assign(Object.create(transport) as typeof transport, {
      serve: async (...options: Parameters<typeof transport.serve>) => {
        const server = await transport.serve(...options);
        return { ...server, stop: () => ending('server', () => server.stop()) };
      },
      joinMain: () => ending('join', () => Promise.reject(new OdmoeError('NO_MAIN', 'nobody answers'))),
    }),
    discovery: {
      advertise: async () => ({ stop: () => ending('announcement', () => undefined) }),
      watchPeers: async () => ({ stop: () => ending('search', () => undefined) }),
    },
    devices: {
      ...ENVIRONMENT.devices,
      open: (request) => {
        const device = new SharedDevice(ENVIRONMENT.devices.open(request)).open();
        devices += 1;
        return { ...device, dispose: () => (device.dispose(), (devices -= 1)) };
      },
    },
    openPrompts: ({ tokenizer }) =>
      Object.assign(new InlinePromptEncoder(tokenizer, ENVIRONMENT.runtime), {
        close: () => ending('prompts', () => undefined),
      }),
    openFormats: () => ({
      compile: () => assert.fail('nobody asks'),
      close: () => ending('formats', () => undefined),
    }),
    ownWorker: {
      start: async () => ({
        address: '',
        openCounts: () => ({}),
        parts: () => [],
        stop: () => ending('ownWorker', () => undefined),
      }),
      watch: null,
    },
  };
  const settings = testSettings(role, await packOf('tiny'), {
    mainAddress: role === 'main' ? null : '192.0.2.1:7600',
    main: { experts: late === 'ownWorker' ? 'both' : 'workers' },
  });
  work.holdNext();
  const node = await START[role](settings, environment, silentLog);
  if (late === 'join') await waitUntil('main is asked', () => work.underWay > 0);
  return { close: () => node.stop(), letGo: () => work.letGo(), holds: () => (devices > 0 ? ['the device'] : []) };
}

describe('a daemon that stops waits, before its device goes, for', () => {
  const PARTS = {
    main: ['server', 'announcement', 'search', 'prompts', 'formats', 'ownWorker'],
    shadow: ['server', 'announcement', 'join', 'formats'],
    worker: ['server', 'announcement', 'join'],
  } as const;
  for (const role of ['main', 'shadow', 'worker'] as const) {
    const parts = PARTS[role].map((part) => [`${role}: ${part}`, () => stopping(role, part)] as const);
    itWaitsForWork(Object.fromEntries(parts));
  }
});
