/** An announcement of a daemon as a packet of multicast DNS (RFC 6762, RFC 6763). Pure. */
import { SERVICE_TYPE } from '../../shared/transport/discovery/multicast.js';

const TYPE_A = 1;
const TYPE_PTR = 12;
const TYPE_TXT = 16;
const TYPE_SRV = 33;
const CLASS_IN = 1;
/** A response that its sender answers for. */
const RESPONSE_FLAGS = 0x8400;
const LIVES_S = 120;
const SERVICE = ['_' + SERVICE_TYPE, '_tcp', 'local'];

export function announcementPacket(
  id: string,
  port: number,
  address: string,
  txt: Readonly<Record<string, string>>,
): Buffer {
  const instance = [id, ...SERVICE];
  const host = [id, 'local'];
  const answers = [
    record(SERVICE, TYPE_PTR, nameBytes(instance)),
    record(instance, TYPE_SRV, Buffer.concat([numbers16(0, 0, port), nameBytes(host)])),
    record(instance, TYPE_TXT, txtBytes(txt)),
    record(host, TYPE_A, Buffer.from(address.split('.').map(Number))),
  ];
  return Buffer.concat([numbers16(0, RESPONSE_FLAGS, 0, answers.length, 0, 0), ...answers]);
}

function record(name: readonly string[], type: number, data: Buffer): Buffer {
  return Buffer.concat([nameBytes(name), numbers16(type, CLASS_IN, 0, LIVES_S, data.length), data]);
}

function nameBytes(labels: readonly string[]): Buffer {
  return Buffer.concat([...labels.map(counted), Buffer.from([0])]);
}

function txtBytes(txt: Readonly<Record<string, string>>): Buffer {
  return Buffer.concat(Object.entries(txt).map(([key, value]) => counted(`${key}=${value}`)));
}

/** With its length in a byte before it. */
function counted(text: string): Buffer {
  const bytes = Buffer.from(text);
  return Buffer.concat([Buffer.from([bytes.length]), bytes]);
}

function numbers16(...values: readonly number[]): Buffer {
  const bytes = Buffer.alloc(values.length * 2);
  values.forEach((value, at) => bytes.writeUInt16BE(value, at * 2));
  return bytes;
}
