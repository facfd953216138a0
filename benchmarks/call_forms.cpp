// Reads calls as llama.cpp does, for benchmarks/call_forms.py: a template's path as the argument; lines of JSON
// {"tools": [...], "text": "...", "thinking": bool} on stdin, each answered with a line of JSON.
#include "chat.h"
#include "nlohmann/json.hpp"

#include <fstream>
#include <iostream>
#include <sstream>

using nlohmann::ordered_json;

int main(int, char ** argv) {
    std::ifstream file(argv[1]);
    std::stringstream source;
    source << file.rdbuf();
    auto templates = common_chat_templates_init(nullptr, source.str(), "", "");
    for (std::string line; std::getline(std::cin, line);) {
        ordered_json answer;
        try {
            auto asked = ordered_json::parse(line);
            common_chat_templates_inputs inputs;
            common_chat_msg question;
            question.role    = "user";
            question.content = "Well?";
            inputs.messages  = { question };
            for (auto & tool : asked["tools"]) {
                auto & function = tool["function"];
                inputs.tools.push_back({ function["name"], function["description"], function["parameters"].dump() });
            }
            inputs.parallel_tool_calls = true;
            inputs.enable_thinking     = asked["thinking"];
            inputs.reasoning_format    = COMMON_REASONING_FORMAT_DEEPSEEK;
            auto params                = common_chat_templates_apply(templates.get(), inputs);
            common_chat_parser_params how(params);
            how.reasoning_format = COMMON_REASONING_FORMAT_DEEPSEEK;
            how.parser.load(params.parser);
            auto message = common_chat_parse(asked["text"], false, how);
            answer["text"] = message.content;
            answer["thinking"] = message.reasoning_content;
            answer["calls"] = ordered_json::array();
            for (auto & call : message.tool_calls) {
                answer["calls"].push_back({ call.name, call.arguments });
            }
        } catch (const std::exception & error) {
            answer = { { "error", error.what() } };
        }
        std::cout << answer.dump(-1, ' ', false, ordered_json::error_handler_t::replace) << std::endl;
    }
}
