import assert from 'node:assert/strict';
import * as fc from 'fast-check';
import { addressProblem } from '../../engine/daemon/follow-addresses.js';
import {
  compareAddresses,
  INTERFACE_POLL_MS,
  InterfaceWatch,
  spokenAddresses,
  type HostAddress,
} from '../../shared/transport/discovery/host-interfaces.js';
import { VirtualClock } from '../../shared/base/runtime/virtual-clock.js';
import { VirtualRuntime } from '../../shared/base/runtime/virtual-runtime.js';

const LO: HostAddress = { name: 'lo', address: '127.0.0.1', internal: true };
const ETH: HostAddress = { name: 'eth0', address: '192.0.2.7', internal: false };
const MOVED: HostAddress = { ...ETH, address: '192.0.2.9' };
const WLAN: HostAddress = { name: 'wlan0', address: '198.51.100.4', internal: false };

describe('the addresses of a host', () => {
  it('are compared by those added and removed, whatever their order', () => {
    assert.deepEqual(compareAddresses([LO, ETH], [MOVED, LO]), { come: [MOVED], gone: [ETH] });
    assert.deepEqual(compareAddresses([LO, ETH], [ETH, LO]), { come: [], gone: [] });
    assert.deepEqual(compareAddresses([LO], [LO, WLAN]), { come: [WLAN], gone: [] });
    const list = fc.uniqueArray(fc.constantFrom(LO, ETH, MOVED, WLAN));
    fc.assert(
      fc.property(list, list, (before, after) => {
        const { come, gone } = compareAddresses(before, after);
        const left = new Set([...before.filter((one) => !gone.includes(one)), ...come]);
        assert.deepEqual(left, new Set(after));
      }),
    );
  });

  it('used for multicast are those of all networks, the given one, or the new one of its interface', () => {
    for (const [all, given, followed, addresses] of [
      [[LO, ETH, WLAN], null, null, [ETH.address, WLAN.address]],
      [[LO], null, null, [LO.address]],
      [[], null, null, [LO.address]],
      [[LO, ETH, WLAN], ETH.address, null, [ETH.address]],
      [[LO, MOVED, WLAN], ETH.address, 'eth0', [MOVED.address]],
      [[LO, WLAN], ETH.address, 'eth0', []],
      [[LO, WLAN], ETH.address, null, []],
      [[LO], LO.address, null, [LO.address]],
    ] as const) {
      const spoken = spokenAddresses(all, given, followed);
      assert.deepEqual(spoken.addresses, addresses, `${JSON.stringify(all)} ${given} ${followed}`);
    }
    assert.equal(spokenAddresses([LO, ETH], ETH.address, null).followed, 'eth0');
  });

  it('are reported as a problem where others cannot reach the daemon, with an action', () => {
    const mdns = { provider: 'mdns' as const, interfaceAddress: null, name: null, peers: [] };
    const given = { ...mdns, interfaceAddress: ETH.address };
    const still = { ...mdns, provider: 'static' as const };
    for (const [addresses, listenHost, discovery, problem, followed = null] of [
      [[LO, ETH], '0.0.0.0', mdns, null],
      [[LO], '0.0.0.0', mdns, /no network: .* found when it has one/],
      [[LO], '0.0.0.0', still, null],
      [[LO], '127.0.0.1', mdns, null],
      [[LO, MOVED], ETH.address, still, /listens on 192\.0\.2\.7.*--host 0\.0\.0\.0/],
      [[LO, MOVED], '0.0.0.0', given, /no interface of this host has 192\.0\.2\.7/],
      [[LO, MOVED], '0.0.0.0', given, null, 'eth0'],
      [[LO, ETH], 'box1', given, null],
    ] as const) {
      const spoken = spokenAddresses(addresses, discovery.interfaceAddress, followed);
      const found = addressProblem(addresses, spoken.addresses, { listenHost, discovery });
      if (problem === null) assert.equal(found, null);
      else assert.match(found ?? '', problem);
    }
  });

  it('are watched only while a listener wants to hear of changes', async () => {
    const clock = new VirtualClock();
    const runtime = new VirtualRuntime(clock, 1);
    let addresses: HostAddress[] | null = [LO];
    const watch = new InterfaceWatch(runtime, () => {
      if (addresses === null) throw new Error('too many open files');
      return addresses;
    });
    const heard: string[] = [];
    const listener = (name: string) => ({
      changed: () => heard.push(`${name} ${watch.addresses.map(({ address }) => address).join(' ')}`),
      failed: ({ message }: Error) => heard.push(`${name} ${message}`),
    });
    const stops = ['a', 'b'].map((name) => watch.watch(listener(name)));
    const pass = (ms: number): Promise<void> => clock.run(() => false, { untilMs: clock.nowMs + ms });
    await pass(3 * INTERFACE_POLL_MS);
    assert.deepEqual(heard, []);
    addresses = [LO, ETH];
    await pass(INTERFACE_POLL_MS);
    assert.deepEqual(heard.splice(0), ['a 127.0.0.1 192.0.2.7', 'b 127.0.0.1 192.0.2.7']);
    stops[1]?.();
    addresses = null;
    await pass(INTERFACE_POLL_MS);
    assert.deepEqual(heard.splice(0), ['a too many open files']);
    assert.deepEqual(watch.addresses, [LO, ETH], 'those known are kept');
    addresses = [MOVED];
    await pass(INTERFACE_POLL_MS);
    assert.deepEqual(heard.splice(0), ['a 192.0.2.9']);
    stops[0]?.();
    assert.equal(runtime.openCounts.timers, 0);
  });
});
