import assert from 'node:assert/strict';
import type { NodeEnvironment } from '../../engine/environment/node-environment.js';
import { SharedDevice } from '../../engine/devices/shared-device.js';
import { openHandles, wrapHandle } from '../../native/index.js';
import { InlinePromptEncoder } from '../../engine/generation/prompt-encoder.js';
import { startMain } from '../../main-node/main.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { startShadow } from '../../shadow-node/main.js';
import { startWorker } from '../../worker-node/main.js';
import { packOf } from '../integration/harness/test-models.js';
import { testSettings } from '../integration/harness/test-settings.js';
import { waitUntil } from '../integration/harness/wait-until.js';
import { ENVIRONMENT } from '../wall.js';
import { type Closing, HeldWork, itWaitsForWork, leavesNothing } from './held-work.js';
import { silentLog } from './worker-test-slots.js';

const START = { main: startMain, shadow: startShadow, worker: startWorker };

/** Parts of a daemon's environment that end slowly. */
type Part = 'device' | 'server' | 'advertisement' | 'search' | 'join' | 'prompts' | 'formats' | 'ownWorker';

/** Ends the part, now or later. */
type EndPart = <Result>(part: Part, end: () => Result | Promise<Result>) => Promise<Result>;

/** An environment whose parts end by `ending`, and whose part `broken` fails to begin. `open`: names of the devices and parts that live. */
function surroundings(ending: EndPart, broken: Part | null): { environment: NodeEnvironment; open: () => string[] } {
  const open: string[] = [];
  const begin = (name: string): (() => void) => {
    open.push(name);
    return () => void open.splice(open.indexOf(name), 1);
  };
  const requireWhole = (part: Part): void => {
    if (part === broken) throw new OdmoeError('INTERNAL', `${part} cannot be begun`);
  };
  const begun = async (part: Part): Promise<{ stop: () => Promise<void> }> => {
    requireWhole(part);
    const end = begin(part);
    return { stop: () => ending(part, end) };
  };
  const { transport } = ENVIRONMENT;
  const environment: NodeEnvironment = {
    ...ENVIRONMENT,
    measureReads: null,
    chooseWeightForm: null,
    createHttpServer: null,
    transport: Object.assign(Object.create(transport) as typeof transport, {
      serve: async (...options: Parameters<typeof transport.serve>) => {
        const { stop } = await begun('server');
        const server = await transport.serve(...options);
        return { ...server, stop: () => stop().then(() => server.stop()) };
      },
      call: () => ending('join', () => Promise.reject(new OdmoeError('NO_MAIN', 'nobody answers'))),
    }),
    discovery: { advertise: () => begun('advertisement'), watchPeers: () => begun('search') },
    devices: {
      ...ENVIRONMENT.devices,
      open: (request) => {
        requireWhole('device');
        const device = new SharedDevice(ENVIRONMENT.devices.open(request)).open();
        const end = begin('device');
        return wrapHandle(device, { dispose: () => (device.dispose(), end()) });
      },
    },
    openPrompts: ({ tokenizer }) => {
      const end = begin('prompts');
      return Object.assign(new InlinePromptEncoder(tokenizer, ENVIRONMENT.runtime), {
        close: () => ending('prompts', end),
      });
    },
    openFormats: () => {
      const end = begin('formats');
      return { compile: () => assert.fail('nobody asks'), close: () => ending('formats', end) };
    },
    ownWorker: {
      start: async () => ({ address: '', openCounts: () => ({}), components: () => [], ...(await begun('ownWorker')) }),
      watch: null,
    },
  };
  return { environment, open: () => [...open] };
}

async function settingsOf(role: keyof typeof START, part: Part): Promise<NodeSettings> {
  return testSettings(role, await packOf('tiny'), {
    mainAddress: role === 'main' ? null : '192.0.2.1:7600',
    main: { experts: part === 'ownWorker' ? 'both' : 'workers' },
  });
}

/** A daemon that is stopped while the part ends slowly. Its device ends last. */
async function stopping(role: keyof typeof START, late: Part): Promise<Closing> {
  const work = new HeldWork();
  const ending: EndPart = async (part, end) => (part === late ? work.whenLetGo(end) : end());
  const { environment, open } = surroundings(ending, null);
  work.holdNext();
  const node = await START[role](await settingsOf(role, late), environment, silentLog);
  if (late === 'join') await waitUntil('main is asked', () => work.underWay > 0);
  const holds = (): string[] => open().filter((name) => name === 'device');
  return { close: () => node.stop(), letGo: () => work.letGo(), holds };
}

describe('stopping a daemon, before its device is released, waits for', () => {
  const PARTS = {
    main: ['server', 'advertisement', 'search', 'prompts', 'formats', 'ownWorker'],
    shadow: ['server', 'advertisement', 'join', 'formats'],
    worker: ['server', 'advertisement', 'join'],
  } as const;
  for (const role of ['main', 'shadow', 'worker'] as const) {
    const parts = PARTS[role].map((part) => [`${role}: ${part}`, () => stopping(role, part)] as const);
    itWaitsForWork(Object.fromEntries(parts));
  }
});

describe('a daemon that fails to start releases everything: failure in', () => {
  const PARTS = {
    main: ['device', 'server', 'advertisement', 'search', 'ownWorker'],
    shadow: ['device', 'server', 'advertisement'],
    worker: ['device', 'server', 'advertisement'],
  } as const;
  for (const role of ['main', 'shadow', 'worker'] as const)
    for (const part of PARTS[role])
      it(`a ${role} leaves nothing open when its start fails in ${part}`, () =>
        leavesNothing(async () => {
          const handles = openHandles();
          const { environment, open } = surroundings(async (_, end) => end(), part);
          const starting = START[role](await settingsOf(role, part), environment, silentLog);
          await assert.rejects(starting, { code: 'INTERNAL' });
          assert.deepEqual([open(), openHandles()], [[], handles]);
        }));

  it('a worker leaves nothing open when it is not wanted any more once its slots are made', () =>
    leavesNothing(async () => {
      const handles = openHandles();
      const { environment, open } = surroundings(async (_, end) => end(), null);
      const abandoned = new AbortController();
      const info = (event: string): void => {
        if (event === 'experts are read from storage') abandoned.abort();
      };
      const log = { ...silentLog, info };
      const settings = await settingsOf('worker', 'device');
      await assert.rejects(startWorker(settings, environment, log, undefined, abandoned.signal), { code: 'CANCELLED' });
      assert.ok(abandoned.signal.aborted);
      assert.deepEqual([open(), openHandles()], [[], handles]);
    }));
});
