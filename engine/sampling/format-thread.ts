/** The thread that compiles output formats. It answers one message after another. */
import { compileFormat } from '../output-format/format-grammar.js';
import { type PackedGrammar, packGrammar } from '../output-format/packed-grammar.js';
import { shortestTexts } from '../output-format/shortest-texts.js';
import { answerQuestions } from '../threads/answer-questions.js';
import type { FormatQuestion } from './format-compiler.js';

answerQuestions<FormatQuestion, PackedGrammar>(
  async ({ format, singleBytes }) => {
    const { root, nodes } = compileFormat(format);
    return packGrammar(root, nodes, shortestTexts(nodes, singleBytes));
  },
  ({ buffer }) => [buffer],
);
