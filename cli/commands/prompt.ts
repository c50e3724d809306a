import type { Command } from 'commander';

import { addMainFlags, findMain, type MainFlags } from '../client/find-main.js';
import { addGenerationFlags, generationRequestFrom, type GenerationFlags } from '../client/generation-flags.js';
import { promptText } from '../client/prompt-text.js';
import { withInterrupt } from '../client/interrupt.js';
import { generationSummary, renderGeneration } from '../output/generation-output.js';
import { standardError } from '../../shared/base/text/text-output.js';
import { generate } from '../../shared/transport/node-clients.js';

/** `odmoe prompt`: sends a prompt to a running cluster. */
export function registerPromptCommand(program: Command): void {
  const command = program
    .command('prompt')
    .description('ask a running cluster; the answer is printed as it comes')
    .argument('[text]', 'the prompt; - or nothing: it comes by standard input');
  addGenerationFlags(addMainFlags(command))
    .addHelpText(
      'after',
      `
Without --main the cluster is found by mDNS. Ctrl-C cancels the request on the cluster too.

Examples:
  odmoe prompt "Tell me a story about a fox."
  odmoe prompt "What is 17 plus 25?" --main 192.168.1.10:7600 --json
  odmoe prompt "Write a haiku." --temperature 0.8 --top-p 0.95 --max-tokens 60
  odmoe prompt "Once upon a time" --raw --stop "."
  odmoe prompt - < question.txt      (nobody else on this machine sees the prompt in the list of processes)`,
    )
    .action(async (text: string | undefined, flags: GenerationFlags & MainFlags) => {
      const request = generationRequestFrom(flags, await promptText(text, flags.promptTokenIds !== undefined));
      const { address, transport } = await findMain(flags);
      const result = await withInterrupt((signal) =>
        renderGeneration(generate(transport, address, request, signal), { json: flags.json, stream: !flags.json }),
      );
      if (!flags.json && standardError.isTerminal) standardError.write(`${generationSummary(result)}\n`);
    });
}
