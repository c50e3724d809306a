/** Checks the first bytes of a library before it is loaded, because loading a truncated library kills the process without a message. */
import { closeSync, openSync, readSync, statSync } from 'node:fs';

/** ELF's numbers of processors, by Node's names. */
const ELF_MACHINES: Readonly<Record<string, number>> = {
  x64: 62,
  arm64: 183,
  riscv64: 243,
  s390x: 22,
  ppc64: 21,
  loong64: 258,
};
const ELF_MAGIC = Buffer.from([0x7f, 0x45, 0x4c, 0x46]);
const ELF_64_BITS = 2;
const ELF_LITTLE_ENDIAN = 1;
const ELF_HEADER_BYTES = 64;
const PROGRAM_HEADER_BYTES = 56;
const LOADED_SEGMENT = 1;
/** Enough bytes for the header and the program headers behind it, in every library that a linker makes. */
const HEAD_BYTES = 16 * 1024;

/** The reason why a Linux process on this processor cannot load the library; null where its first bytes show no fault. Throws the system's error. */
export function libraryFault(path: string, processor: string): string | null {
  const { size } = statSync(path);
  const head = Buffer.alloc(Math.min(size, HEAD_BYTES));
  const file = openSync(path, 'r');
  try {
    readSync(file, head, 0, head.length, 0);
  } finally {
    closeSync(file);
  }
  return headFault(head, size, processor);
}

/** Pure function of the file's first bytes and its size. */
export function headFault(head: Buffer, sizeBytes: number, processor: string): string | null {
  if (sizeBytes < ELF_HEADER_BYTES || !head.subarray(0, 4).equals(ELF_MAGIC)) return 'it is no library of Linux';
  const expected = ELF_MACHINES[processor];
  // The system's loader judges all other files.
  if (head[4] !== ELF_64_BITS || head[5] !== ELF_LITTLE_ENDIAN || expected === undefined) return null;
  if (head.readUInt16LE(18) !== expected) return `it is of another processor than this one (${processor})`;
  const first = Number(head.readBigUInt64LE(32));
  const count = head.readUInt16LE(56);
  for (let index = 0; index < count; index += 1) {
    const at = first + index * PROGRAM_HEADER_BYTES;
    if (at + PROGRAM_HEADER_BYTES > head.length) return sizeBytes > head.length ? null : cutShort(sizeBytes, at);
    if (head.readUInt32LE(at) !== LOADED_SEGMENT) continue;
    const end = Number(head.readBigUInt64LE(at + 8) + head.readBigUInt64LE(at + 32));
    if (end > sizeBytes) return cutShort(sizeBytes, end);
  }
  return null;
}

function cutShort(sizeBytes: number, neededBytes: number): string {
  return `it is cut short: ${sizeBytes} bytes of at least ${neededBytes}`;
}
