/**
 * node dist/test/gguf-of-checkpoint.js CHECKPOINT FILE.gguf: the weights of a Qwen3-MoE checkpoint that `odmoe bench synth` has written, as a GGUF file for llama.cpp.
 * Its tokenizer says nothing: bytes, and words by their number.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import {
  type CheckpointConfig,
  ggufKeys,
  ggufTensors,
  readStored,
  tokenizerKeys,
} from './unit/gguf-from-checkpoint.js';
import { ggufBytes } from './unit/gguf-writer.js';

/** A write takes fewer than 2 GiB. */
const PIECE_BYTES = 256 * 1024 * 1024;

const [directory, output] = process.argv.slice(2);
if (directory === undefined || output === undefined) throw new Error('give a checkpoint and the file to write');
const config = JSON.parse(readFileSync(join(directory, 'config.json'), 'utf8')) as CheckpointConfig;
if (config['model_type'] !== 'qwen3_moe') throw new Error('only checkpoints of qwen3_moe are converted');
const shards = readdirSync(directory).filter((name) => name.endsWith('.safetensors'));
const stored = shards.flatMap((shard) => readStored(directory, shard));
const bytes = ggufBytes({
  keys: [...ggufKeys('qwen3moe', config), ...tokenizerKeys(Number(config['vocab_size']))],
  tensors: ggufTensors(stored, 'qwen3moe', config),
});
const file = await open(output, 'wx');
try {
  for (let at = 0; at < bytes.length; at += PIECE_BYTES) await file.writeFile(bytes.subarray(at, at + PIECE_BYTES));
} finally {
  await file.close();
}
