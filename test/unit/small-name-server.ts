/** A name server for tests: it answers questions for SRV, A and AAAA records by UDP, and knows nothing else. */
import { createSocket, type Socket } from 'node:dgram';

export type NameRecord =
  | { readonly type: 'SRV'; readonly name: string; readonly port: number; readonly target: string }
  | { readonly type: 'A' | 'AAAA'; readonly name: string; readonly bytes: readonly number[] };

const TYPES = { A: 1, AAAA: 28, SRV: 33 } as const;
const INTERNET = 1;
const HEADER_BYTES = 12;
const RESPONSE = 0x80_80;
const SERVER_FAILURE = 2;
const NO_SUCH_NAME = 3;

export class SmallNameServer {
  /** It answers every question with a failure. */
  fails = false;

  private constructor(
    private readonly socket: Socket,
    private readonly records: readonly NameRecord[],
  ) {
    socket.on('message', (question, { port, address }) => socket.send(this.reply(question), port, address));
  }

  static async start(records: readonly NameRecord[]): Promise<SmallNameServer> {
    const socket = createSocket('udp4');
    await new Promise<void>((resolve) => socket.bind(0, '127.0.0.1', resolve));
    return new SmallNameServer(socket, records);
  }

  /** "host:port". */
  get address(): string {
    return `127.0.0.1:${this.socket.address().port}`;
  }

  close(): void {
    this.socket.close();
  }

  private reply(question: Buffer): Buffer {
    const { name, end } = readName(question, HEADER_BYTES);
    const type = question.readUInt16BE(end);
    const found = this.fails ? [] : this.records.filter((one) => one.name === name && TYPES[one.type] === type);
    const missing = this.fails ? SERVER_FAILURE : NO_SUCH_NAME;
    const header = Buffer.alloc(HEADER_BYTES);
    question.copy(header, 0, 0, 2);
    header.writeUInt16BE(RESPONSE | (found.length > 0 ? 0 : missing), 2);
    header.writeUInt16BE(1, 4);
    header.writeUInt16BE(found.length, 6);
    return Buffer.concat([header, question.subarray(HEADER_BYTES, end + 4), ...found.map(encodeRecord)]);
  }
}

function readName(message: Buffer, begin: number): { name: string; end: number } {
  const labels: string[] = [];
  let at = begin;
  for (let length = message[at] ?? 0; length > 0; length = message[at] ?? 0) {
    labels.push(message.toString('latin1', at + 1, at + 1 + length));
    at += 1 + length;
  }
  return { name: labels.join('.'), end: at + 1 };
}

function encodeName(name: string): Buffer {
  const labels = name.split('.').map((label) => Buffer.from([label.length, ...Buffer.from(label)]));
  return Buffer.concat([...labels, Buffer.alloc(1)]);
}

function encodeRecord(record: NameRecord): Buffer {
  const data = record.type === 'SRV' ? encodeService(record) : Buffer.from(record.bytes);
  const fixed = Buffer.alloc(10);
  fixed.writeUInt16BE(TYPES[record.type], 0);
  fixed.writeUInt16BE(INTERNET, 2);
  fixed.writeUInt32BE(5, 4);
  fixed.writeUInt16BE(data.length, 8);
  return Buffer.concat([encodeName(record.name), fixed, data]);
}

/** Priority and weight 0. */
function encodeService({ port, target }: { port: number; target: string }): Buffer {
  const fixed = Buffer.alloc(6);
  fixed.writeUInt16BE(port, 4);
  return Buffer.concat([fixed, encodeName(target)]);
}
